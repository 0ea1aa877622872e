"""``link/ilp``: the integer program of Lambert & Sakellariou, Section III, in its compact form, by HiGHS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import highspy
import numpy as np

from trimtab.errors import TooLarge
from trimtab.model.placement import Bound, Placement
from trimtab.place.knobs import check, knob
from trimtab.place.link.counts import Allotments, Instance
from trimtab.place.link.greedy import greedy
from trimtab.place.stop import NO_LIMIT

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.place.stop import Stop

MOST_UNITS: Final = 1e6  # largest ratio of two numbers at which HiGHS can distinguish the smaller one from zero


@dataclass(frozen=True, slots=True)
class Ilp:
    """Solves the integer program exactly with HiGHS, within a limit of size and time (Lambert, Section III).

    Variables are counts ``n[i,k]`` of links and switches ``y[i,k]`` for the copy that comes in.
    The paper has a variable per link and broker. Links of a topic are interchangeable, so counts suffice, which removes
    most of the symmetry. Its constraint 2 binds ``k`` twice and would allow a topic one link in all; it is read as
    ``n[i,k] <= (number that fits) * y[i,k]``. In constraint 3 the rate belongs inside both sums. The search starts from
    ``gs``, so it is never worse, and reports the bound that HiGHS proved within its time limit.
    """

    max_variables: int = knob(400_000, "larger programs are refused, not tried", least=1)
    stop: Stop = NO_LIMIT

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem)
        size = 2 * len(instance.order) * len(instance.room)
        if size > self.max_variables:
            raise TooLarge(
                f"link/ilp would need {size:,} variables, and takes at most {self.max_variables:,}; "
                "use link/trim, which has no such limit, or raise max_variables"
            )
        start = Allotments(*greedy(instance.rate, instance.degree, instance.room, False))
        allotments, bound = solve(instance, start, self.stop)
        allotments = instance.with_free_topics(allotments)
        return Placement("link", instance.links(problem, allotments), Bound("ilp", bound))


def solve(instance: Instance, start: Allotments, stop: Stop, max_nodes: int | None = None) -> tuple[Allotments, float]:
    """The best allotments HiGHS finds from ``start`` on, and the upper bound it proves."""
    topic, room = instance.order, instance.room
    rate, degree = instance.rate[topic], instance.degree[topic]
    topics, brokers = len(topic), len(room)
    if topics == 0 or brokers == 0:
        return start, start.data(instance.rate)
    # how many links of topic i fit on broker k; the columns are n[0,0], n[0,1], ..., then the same for y
    with np.errstate(over="ignore"):  # infinitely many links fit if their rate is negligible
        most = np.floor(room / rate[:, None]) - 1.0
    fits = np.minimum(most, degree[:, None]).clip(min=0.0).ravel()
    pairs = topics * brokers
    i, k = np.divmod(np.arange(pairs), brokers)
    # In whole units the program is exact; otherwise rows of bandwidth are scaled to 1, so that the absolute
    # tolerance of HiGHS is relative to it.
    if instance.unit > 0.0 and room.max() / instance.unit <= MOST_UNITS:
        limit = np.floor(room / instance.unit * (1.0 + 1e-12))
        share = np.rint(rate[i] / instance.unit)
    else:
        limit = np.ones(brokers)
        share = rate[i] / np.where(room[k] > 0.0, room[k], 1.0)

    model = highspy.HighsLp()
    model.num_col_ = 2 * pairs
    model.num_row_ = topics + brokers + pairs
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.concatenate([rate[i] / rate.max(), np.zeros(pairs)])
    model.col_lower_ = np.zeros(2 * pairs)
    model.col_upper_ = np.concatenate([fits, (fits > 0).astype(np.float64)])
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate([degree.astype(np.float64), limit, np.zeros(pairs)])
    model.integrality_ = [highspy.HighsVarType.kInteger] * (2 * pairs)
    at = np.arange(pairs)
    rows_n = np.stack([i, topics + k, topics + brokers + at], axis=1).ravel()
    values_n = np.stack([np.ones(pairs), share, np.ones(pairs)], axis=1).ravel()
    rows_y = np.stack([topics + k, topics + brokers + at], axis=1).ravel()
    values_y = np.stack([share, -np.maximum(fits, 1.0)], axis=1).ravel()
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.concatenate([3 * at, 3 * pairs + 2 * np.arange(pairs + 1)]).astype(np.int32)
    model.a_matrix_.index_ = np.concatenate([rows_n, rows_y]).astype(np.int32)
    model.a_matrix_.value_ = np.concatenate([values_n, values_y])

    highs = highspy.Highs()
    highs.silent()
    options: dict[str, float | int] = {
        "threads": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 1e-9,
    }
    if math.isfinite(stop.left_s()):
        options["time_limit"] = max(stop.left_s(), 0.0)
    if max_nodes is not None:
        options["mip_max_nodes"] = max_nodes
    for option, value in options.items():
        highs.setOptionValue(option, value)
    highs.passModel(model)
    row = np.full(len(instance.rate), -1)
    row[topic] = np.arange(topics)
    given = row[start.topic] >= 0
    columns = row[start.topic[given]] * brokers + start.broker[given]
    initial = highspy.HighsSolution()
    values = np.zeros(2 * pairs)
    values[columns], values[pairs + columns] = start.links[given], 1.0
    initial.col_value = list(values)
    highs.setSolution(initial)
    # A call into Python now and then lets signal handlers run, so that Ctrl-C is heard.
    highs.cbMipInterrupt += lambda event: None
    highs.run()

    bound = min(float(highs.getInfo().mip_dual_bound * rate.max()), instance.offered)
    initial_data = start.data(instance.rate)
    # Numerically lost: the bound contradicts a feasible solution, or small topics are below the tolerances of HiGHS.
    lost = bound < initial_data * (1.0 - 1e-9) or rate.max() > MOST_UNITS * rate.min()
    if lost:
        bound = instance.offered
    columns_found = np.asarray(highs.getSolution().col_value)
    if len(columns_found) != 2 * pairs:  # no solution found in time, not even the start
        return start, instance.floored(bound)
    allotments = _within_room(instance, np.rint(columns_found[:pairs]).astype(np.int64).reshape(topics, brokers))
    if allotments.data(instance.rate) < initial_data:
        allotments = start
    reached = allotments.data(instance.rate)
    if not lost and bound <= reached * (1.0 + 1e-7) and highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
        bound = reached  # equal up to the tolerances of HiGHS
    return allotments, max(instance.floored(bound), reached)


def _within_room(instance: Instance, count: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Allotments:
    """Remove links where rounding left a broker above its room: HiGHS keeps bandwidths only to a tolerance."""
    rate = instance.rate[instance.order]
    for k, room in enumerate(instance.room):
        while rate @ (count[:, k] + (count[:, k] > 0)) > room:
            count[np.flatnonzero(count[:, k])[rate[count[:, k] > 0].argmin()], k] -= 1
    topics, brokers = np.nonzero(count)
    links = count[topics, brokers].astype(np.int32)
    return Allotments(instance.order[topics], brokers.astype(np.int32), links)
