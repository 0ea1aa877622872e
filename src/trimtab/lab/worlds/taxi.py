"""The taxi city of Khare et al. (SEC'18, III-A): regions of 500 m x 500 m, and the taxis in each of them over a day.

Trips come from a file in the format of the DEBS 2015 Grand Challenge (New York taxi trips), or are generated: pickups
follow the rush hours of a day, and trips lead from and to a few busy places. A taxi drives straight from its pickup to
its dropoff; between trips it is not counted.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.model.workload import Floats

REGION_M: Final = 500.0
METRES_PER_DEGREE: Final = 111_320.0  # of latitude
DAY_S: Final = 86_400.0
# Pickups in each hour of a generated day, as a share of the busiest hour: two rush hours and a quiet night.
HOURS: Final = (
    0.42, 0.30, 0.20, 0.13, 0.10, 0.16, 0.30, 0.50, 0.72, 0.80, 0.70, 0.60,
    0.55, 0.52, 0.55, 0.62, 0.72, 0.85, 1.00, 0.95, 0.80, 0.68, 0.58, 0.50,
)  # fmt: skip
CENTRE: Final = (40.755, -73.98)  # latitude and longitude of a generated city
PLACES: Final = 6  # busy places
SPREAD_M: Final = 700.0  # standard deviation of pickups and dropoffs around a busy place
TRIP_S: Final = (300.0, 1500.0)
COLUMNS: Final = ("pickup_at", "dropoff_at", "pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat")
WITHOUT_HEADER: Final = (2, 3, 6, 7, 8, 9)  # the same columns in the files of the Grand Challenge, which have no header


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """Trips, one a row; times in seconds since the first pickup."""

    begin_s: Floats
    end_s: Floats
    begin: Floats  # (N, 2) latitude and longitude of the pickup
    end: Floats  # (N, 2) of the dropoff

    def __len__(self) -> int:
        return len(self.begin_s)


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Taxis with passengers in the busiest regions, at equal steps of time."""

    regions: tuple[str, ...]  # ROW-COLUMN of the grid
    taxis: Floats  # (R, steps)
    step_s: float

    def total(self) -> Floats:
        """(steps,) taxis in all of these regions."""
        return np.asarray(self.taxis.sum(axis=0))


def read_trips(path: Path) -> Trips:
    """Trips of a file with a header that names ``COLUMNS``, or without a header as in the Grand Challenge."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    if not rows:
        raise BadInput(f"{path} is empty; expected are taxi trips in the format of the DEBS 2015 Grand Challenge")
    if set(COLUMNS) <= set(rows[0]):
        columns, first = [rows[0].index(name) for name in COLUMNS], 1
    else:
        columns, first = list(WITHOUT_HEADER), 0
    found = []
    for number, row in enumerate(rows[first:], first + 1):
        try:
            times = [datetime.fromisoformat(row[at]).timestamp() for at in columns[:2]]
            places = [float(row[at]) for at in columns[2:]]
        except (ValueError, IndexError):
            raise BadInput(
                f"{path}, line {number}: no taxi trip; a line has {', '.join(COLUMNS)}, as in the DEBS 2015 Grand "
                "Challenge"
            ) from None
        if times[1] > times[0] and all(places):  # a position of zero is a missing one
            found.append([*times, *places])
    if not found:
        raise BadInput(f"{path} has no trip with a position and a duration")
    table = np.array(found)
    table = table[np.argsort(table[:, 0], kind="stable")]
    start = float(table[0, 0])
    return Trips(table[:, 0] - start, table[:, 1] - start, table[:, [3, 2]], table[:, [5, 4]])


def generated(count: int, seed: int) -> Trips:
    """A day of trips in a generated city."""
    if count < 1:
        raise BadKnob("taxi city", "trips", count, "1 or more")
    rng = np.random.default_rng((seed, 2015))
    hour = rng.choice(24, size=count, p=np.array(HOURS) / sum(HOURS))
    begin_s = np.sort((hour + rng.random(count)) * DAY_S / 24)
    metres = rng.uniform(-2500.0, 2500.0, (PLACES, 2))
    popular = 1.0 / np.arange(1, PLACES + 1)

    def positions() -> Floats:
        place = rng.choice(PLACES, size=count, p=popular / popular.sum())
        moved = metres[place] + SPREAD_M * rng.standard_normal((count, 2))
        shrink = np.cos(np.radians(CENTRE[0]))
        return np.asarray(np.array(CENTRE) + moved / METRES_PER_DEGREE / np.array([1.0, shrink]))

    return Trips(begin_s, begin_s + rng.uniform(*TRIP_S, count), positions(), positions())


def activity(trips: Trips, regions: int, steps: int) -> Activity:
    """Taxis in the busiest regions at ``steps`` moments, from the first pickup to the last. O(trips x steps)."""
    if regions < 1 or steps < 1:
        raise BadKnob("taxi city", "regions", regions, "1 or more, as well as the number of steps")
    step_s = float(trips.begin_s[-1]) / steps if len(trips) > 1 else 1.0
    origin = np.minimum(trips.begin.min(axis=0), trips.end.min(axis=0))
    side = REGION_M / METRES_PER_DEGREE / np.array([1.0, np.cos(np.radians(origin[0]))])
    seen: dict[tuple[int, int], Floats] = {}
    for step in range(steps):
        now = (step + 0.5) * step_s
        row = np.flatnonzero((trips.begin_s <= now) & (now < trips.end_s))
        way = ((now - trips.begin_s[row]) / (trips.end_s[row] - trips.begin_s[row]))[:, None]
        cells = ((trips.begin[row] + way * (trips.end[row] - trips.begin[row]) - origin) / side).astype(np.int64)
        names, counts = np.unique(cells, axis=0, return_counts=True)
        for (line, column), number in zip(names.tolist(), counts.tolist(), strict=True):
            seen.setdefault((line, column), np.zeros(steps))[step] = number
    busiest = sorted(seen, key=lambda cell: (-seen[cell].sum(), cell))[:regions]
    if not busiest:
        raise BadInput("no taxi has a passenger at any of these moments; give more trips")
    return Activity(tuple(f"{line}-{column}" for line, column in busiest), np.array([seen[c] for c in busiest]), step_s)
