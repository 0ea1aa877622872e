"""A link placement problem in counts: links of one topic are interchangeable, so only their numbers matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.place.link.greedy import degrees, links_from_allotments, room_of
from trimtab.place.link.ranking import by_degree, selected

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]

FINE: Final = 4_000  # cells of a broker, for bounds and where the grid is exact
COARSE: Final = 1_500  # cells of a broker, for packing where rates share no coarse unit
DECIMALS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)  # scales at which rates may be whole


@dataclass(frozen=True, slots=True, eq=False)
class Allotments:
    """``links[a]`` links of topic ``topic[a]`` go to broker ``broker[a]``; a pair occurs at most once."""

    topic: Rows
    broker: Rows
    links: Rows

    def data(self, rate: Floats) -> float:
        return float(rate[self.topic] @ self.links)


@dataclass(frozen=True, eq=False)
class Instance:
    """The input of a link policy: the number of links of each topic, and the room at each broker."""

    rate: Floats  # (T,) data/s
    degree: Rows  # (T,) links
    room: Floats  # (B,) data/s, with a tiny slack if not all numbers are whole
    order: Rows  # topics that have links, take room and fit somewhere, most links first

    @classmethod
    def of(cls, problem: Problem) -> Instance:
        rate = problem.data_rate
        degree = degrees(problem.topic, len(rate))
        order = by_degree(degree)
        room = room_of(rate, problem.bandwidth)
        takes_room = rate[order] > 0.0
        fits_somewhere = 2.0 * rate[order] <= room.max(initial=0.0)
        order = order[takes_room & fits_somewhere]
        return cls(rate, degree, room, order)

    @cached_property
    def offered(self) -> float:
        return float(self.rate @ self.degree)

    @cached_property
    def unit(self) -> float:
        """The largest number that all rates are multiples of; 0 where none was found."""
        rates = self.rate[self.order]
        if not len(rates) or rates.max() > 1e12:
            return 0.0
        for scale in DECIMALS:
            whole = np.rint(rates * scale)
            if (np.abs(rates * scale - whole) <= 1e-14 * whole).all():
                return float(np.gcd.reduce(whole.astype(np.int64))) / scale
        return 0.0

    @cached_property
    def selected(self) -> int:
        """The number of topics of ``order`` that the merged linear bound selects; the last of them is critical."""
        return selected(self.rate, self.degree, self.order, float(self.room.sum()))

    @cached_property
    def worth(self) -> float:
        """Data of the critical topic per unit of room: the marginal worth of room."""
        if self.selected == 0:
            return 1.0
        critical = float(self.degree[self.order[self.selected - 1]])
        return critical / (critical + 1.0)

    def floored(self, bound: float) -> float:
        """Round a bound down to a multiple of ``unit``: the data received is always one."""
        if self.unit == 0.0:
            return bound
        return float(np.floor(bound / self.unit * (1.0 + 1e-12) + 1e-6)) * self.unit

    def with_free_topics(self, allotments: Allotments) -> Allotments:
        """Add topics that take no room at all, at the roomiest broker."""
        free = np.flatnonzero((self.rate == 0.0) & (self.degree > 0))
        if not len(free) or not len(self.room):
            return allotments
        roomiest = np.full(len(free), self.room.argmax())
        return Allotments(
            np.concatenate([allotments.topic, free]).astype(np.int32),
            np.concatenate([allotments.broker, roomiest]).astype(np.int32),
            np.concatenate([allotments.links, self.degree[free]]).astype(np.int32),
        )

    def links(self, problem: Problem, allotments: Allotments) -> Rows:
        """The broker of every subscription."""
        return links_from_allotments(
            problem.topic, len(self.rate), allotments.topic, allotments.broker, allotments.links
        )


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Weights as whole numbers of cells, for tables over capacity. Row ``i`` is topic ``topic[i]``.

    Exact if the rates share a unit and the widest broker holds few enough of these units. Otherwise weights are
    rounded: down for bounds, so that they stay bounds; to the nearest for packing. Then a set of links that fits the
    grid may slightly exceed the broker's room, so the packing checks the rates themselves.
    """

    topic: Rows  # rows of the instance's topics, most links first
    rate: Floats
    limit: Ints  # links of the topic, at most the number that the widest broker can hold
    first: Ints  # where the topic's needs begin
    need: Ints  # cells that 0, 1, 2, ... links take, the copy that comes in included
    cells: Ints  # (B,) capacity
    cell: float  # data/s of one cell
    exact: bool

    @classmethod
    def of(cls, instance: Instance, *, down: bool, cells: int | None = None) -> Grid:
        """``cells``: of the widest broker at most, by default ``FINE`` where exact or for bounds, else ``COARSE``."""
        widest = float(instance.room.max())
        exact = instance.unit > 0.0 and widest / instance.unit <= (cells or FINE)
        cell = instance.unit if exact else widest / (cells or (FINE if down else COARSE))
        topic = instance.order
        rate = instance.rate[topic]
        limit = np.minimum(np.floor(widest / rate) - 1.0, instance.degree[topic])
        keep = limit >= 1.0  # all of them, up to rounding
        topic, rate, limit = topic[keep], rate[keep], limit[keep].astype(np.int64)
        first = (np.cumsum(limit + 1) - (limit + 1)).astype(np.int64)
        copies = np.arange(int((limit + 1).sum())) - np.repeat(first, limit + 1) + 1
        weight = np.repeat(rate, limit + 1) * copies / cell
        if exact:
            need = np.rint(weight)
        elif down:
            need = np.floor(weight * (1.0 + 1e-12))
        else:
            need = np.maximum(np.rint(weight), 1.0)
        capacity = np.floor(instance.room / cell * (1.0 + 1e-12))
        return cls(
            topic,
            rate,
            limit.astype(np.int64),
            first,
            need.astype(np.int64),
            capacity.astype(np.int64),
            cell,
            exact,
        )

    @property
    def work(self) -> float:
        """Table entries that filling the widest broker takes."""
        return float(self.limit.sum()) * float(self.cells.max(initial=0) + 1)
