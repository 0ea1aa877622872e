"""A simulated city for the emergency application: people move along streets, report emergencies, and subscribe.

The map (streets, squares, shelters) is the same for every seed. The seed determines the events on it: trips,
emergencies, subscriptions. The events do not depend on the length of time steps, since every trip of a person and the
emergencies of every minute have their own random generator.

The model follows Nguyen et al. (DEBS'19), 6.1, who used the ONE simulator to move people through Helsinki: random
waypoints (Johnson & Maltz, 1996) along a grid of streets. Each emergency causes a cluster of reports (Neyman & Scott,
1958).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from trimtab.errors import BadKnob
from trimtab.model.positions import EARTH_KM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]
    T = TypeVar("T")

CENTRE: Final = (47.0707, 15.4395)  # latitude, longitude
SIDE_M: Final = 10_000.0
BLOCK_M: Final = 250.0  # distance between parallel streets
WALKING_M_S: Final = (0.8, 1.8)
DRIVING_M_S: Final = (5.0, 13.9)
DRIVERS: Final = 0.3  # share of the people
PAUSE_S: Final = (10.0, 60.0)  # pause between two trips: minimum, and mean of the time beyond it
TO_SQUARES: Final = 0.6  # share of the trips to a square, and of the emergencies near a square
ZIPF: Final = 1.3  # exponent of popularity: the n-th most popular value is chosen in proportion to n^-ZIPF

# Kind of emergency, most frequent first -> mean number of reports per emergency, beginning of a report's text.
KINDS: Final = {
    "medical": (2.0, "Somebody has collapsed and needs an ambulance."),
    "crash": (5.0, "Two cars have run into each other."),
    "crime": (2.5, "People are fighting, and one has a knife."),
    "fire": (12.0, "There is smoke coming from a roof, and flames in the window."),
    "outage": (9.0, "All lights are off in this street."),
    "flood": (7.0, "Water is standing knee-deep in the road."),
    "storm": (8.0, "A tree has come down across the street."),
    "gas": (4.0, "It smells of gas in the stairwell."),
}
DETAILS: Final = (
    "Nobody seems to be hurt.", "At least two people need help.", "Children are among those affected.",
    "Traffic is backing up on both sides.", "The entrance on the north side is blocked.", "It is getting worse.",
    "Neighbours are helping as well as they can.", "Somebody has already called, but nobody is here yet.",
    "You cannot pass by car; come on foot from the next crossing.", "I am staying here and can show the way.",
    "The house number is hard to see from the street.", "There was a loud noise some minutes ago.",
)  # fmt: skip
WORDS: Final = (25, 420)  # characters of details in a report, so that its message has 200 to 700 bytes
SLOT_S: Final = 60.0  # emergencies are drawn for a minute at a time
LINGER_S: Final = (60.0, 300.0)  # delay of reports after their emergency: mean of an exponential, and its maximum
SPREAD_M: Final = (500.0, 80.0)  # standard deviations: emergencies around a square, reports around an emergency

_FRONT: Final = ("Mill", "Castle", "River", "Garden", "Station", "Harbour", "College", "Chapel")
_BACK: Final = ("Square", "Market", "Bridge", "Gate", "Park")
_HOUSES: Final = {"school": 250, "sports hall": 400, "library": 60, "church": 120, "town hall": 90}  # -> beds

_MAP, _PEOPLE, _TRIPS, _EMERGENCIES, _SUBSCRIPTIONS = range(5)  # purpose of a random generator, part of its seed
_MAP_SEED: Final = 2019


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Positions of all people. Row ``i`` is person ``i``."""

    at_s: float
    lat: Floats  # degrees
    lon: Floats


@dataclass(frozen=True, slots=True)
class Report:
    """A person's report of an emergency."""

    at_s: float
    emergency: int  # number of the emergency; many reports share it
    kind: str
    lat: float
    lon: float
    severity: int  # 1 to 5
    text: str


@dataclass(frozen=True, slots=True)
class Square:
    """A place that people travel to and subscribe to."""

    name: str
    x: int  # in blocks from the south-west corner
    y: int
    lat: float
    lon: float


@dataclass(frozen=True, slots=True)
class Shelter:
    id: str
    name: str
    lat: float
    lon: float
    beds: int


def _rng(seed: int, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed, *purpose])


def _popularity(count: int) -> Floats:
    weight: Floats = np.arange(1, count + 1, dtype=np.float64) ** -ZIPF
    return np.asarray(weight / weight.sum())


def to_earth(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Latitude and longitude of metres from the south-west corner. A flat map is accurate to 0.1 % over 10 km."""
    metre = 180.0 / (math.pi * EARTH_KM * 1_000)  # in degrees
    lat, lon = CENTRE
    return lat + (y - SIDE_M / 2) * metre, lon + (x - SIDE_M / 2) * metre / math.cos(math.radians(lat))


def _map() -> tuple[Square, ...]:
    """Forty squares at crossings, the most popular one first. They are denser in the middle than at the edge."""
    rng = _rng(_MAP_SEED, _MAP)
    last = round(SIDE_M / BLOCK_M)
    chosen: dict[tuple[int, int], None] = {}
    while len(chosen) < len(_FRONT) * len(_BACK):
        x, y = np.clip(np.rint(rng.normal(last / 2, last / 5, 2)), 0, last).astype(int).tolist()
        chosen[x, y] = None
    names = [f"{front} {back}" for front in _FRONT for back in _BACK]
    lat, lon = to_earth(*(BLOCK_M * np.array(list(chosen), dtype=np.float64).T))
    order = rng.permutation(len(names)).tolist()
    return tuple(
        Square(names[at], *place, round(float(a), 5), round(float(b), 5))
        for at, place, a, b in zip(order, chosen, lat, lon, strict=True)
    )


SQUARES: Final = _map()


def shelters() -> list[Shelter]:
    """Shelters: five houses around every square."""
    rng = _rng(_MAP_SEED, _MAP, 1)
    houses: list[Shelter] = []
    for square in SQUARES:
        for kind, beds in _HOUSES.items():
            around = rng.normal((square.x * BLOCK_M, square.y * BLOCK_M), 600.0)
            lat, lon = to_earth(*np.clip(around, 0.0, SIDE_M))
            room = int(rng.integers(beds // 2, 3 * beds // 2))
            name = f"{square.name} {kind}"
            houses.append(Shelter(f"s{len(houses) + 1:03}", name, round(float(lat), 5), round(float(lon), 5), room))
    return houses


def shelters_csv() -> str:
    """The content of examples/emergency/shelters.csv."""
    lines = [f"{house.id},{house.name},{house.lat:.5f},{house.lon:.5f},{house.beds}" for house in shelters()]
    return "\n".join(["id,name,lat,lon,beds", *lines, ""])


@dataclass(frozen=True, slots=True, eq=False)
class _Trip:
    """The n-th trip of every person. Row ``i`` is person ``i``."""

    x: Whole  # destination, in blocks
    y: Whole
    x_first: NDArray[np.bool_]  # whether the first leg is along x; the second leg is along y then
    speed_m_s: Floats
    pause_s: Floats  # pause before the trip


class _Movement:
    """The current trip of each person. A position depends only on the trip and the time, not on the step size."""

    def __init__(self, seed: int, people: int) -> None:
        self._seed = seed
        self._last = round(SIDE_M / BLOCK_M)  # the last street's number
        rng = _rng(seed, _PEOPLE)
        drives = rng.random(people) < DRIVERS
        self._slowest = np.where(drives, DRIVING_M_S[0], WALKING_M_S[0])
        self._fastest = np.where(drives, DRIVING_M_S[1], WALKING_M_S[1])
        self._drawn: dict[int, _Trip] = {}
        self._number = np.zeros(people, dtype=np.int64)  # number of each person's current trip
        self._from = np.stack(self._destinations(rng, people))  # (2, people), start of each trip, in blocks
        self._to = self._from.copy()
        self._x_first = np.zeros(people, dtype=bool)
        self._speed_m_s = np.ones(people)
        self._leave_s = np.zeros(people)
        self._end_s = np.zeros(people)
        self._start_trips(np.arange(people))
        # At time 0, every person is already somewhere on a trip.
        elapsed = rng.random(people) * self._end_s
        self._leave_s -= elapsed
        self._end_s -= elapsed

    def _destinations(self, rng: np.random.Generator, count: int) -> tuple[Whole, Whole]:
        anywhere = rng.integers(0, self._last, (2, count), endpoint=True)
        square = rng.choice(len(SQUARES), count, p=_popularity(len(SQUARES)))
        at_square = np.array([(place.x, place.y) for place in SQUARES], dtype=np.int64)[square].T
        x, y = np.where(rng.random(count) < TO_SQUARES, at_square, anywhere)
        return x, y

    def _trip(self, number: int) -> _Trip:
        if number not in self._drawn:
            rng, people = _rng(self._seed, _TRIPS, number), len(self._number)
            x, y = self._destinations(rng, people)
            speed = self._slowest + rng.random(people) * (self._fastest - self._slowest)
            pause = PAUSE_S[0] + rng.exponential(PAUSE_S[1], people)
            self._drawn[number] = _Trip(x, y, rng.random(people) < 0.5, speed, pause)
        return self._drawn[number]

    def _start_trips(self, people: Whole) -> None:
        """Start the next trip of these people."""
        self._number[people] += 1
        self._from[:, people] = self._to[:, people]
        for number in np.unique(self._number[people]).tolist():
            trip, rows = self._trip(number), people[self._number[people] == number]
            self._to[:, rows] = trip.x[rows], trip.y[rows]
            self._x_first[rows] = trip.x_first[rows]
            self._speed_m_s[rows] = trip.speed_m_s[rows]
            self._leave_s[rows] = self._end_s[rows] + trip.pause_s[rows]
        length_m = BLOCK_M * np.abs(self._to[:, people] - self._from[:, people]).sum(axis=0)
        self._end_s[people] = self._leave_s[people] + length_m / self._speed_m_s[people]

    def at(self, time_s: float) -> tuple[Floats, Floats]:
        """Metres from the south-west corner. ``time_s`` must not decrease from call to call."""
        while (arrived := np.flatnonzero(self._end_s <= time_s)).size:
            self._start_trips(arrived)
        oldest = int(self._number.min())
        self._drawn = {number: trip for number, trip in self._drawn.items() if number > oldest}
        distance_m = np.maximum(0.0, (time_s - self._leave_s) * self._speed_m_s)
        route = BLOCK_M * (self._to - self._from)  # (2, people), signed
        first = np.where(self._x_first, np.abs(route[0]), np.abs(route[1]))
        legs = np.minimum(distance_m, first), np.maximum(0.0, distance_m - first)
        along = np.where(self._x_first, legs, legs[::-1])
        x, y = BLOCK_M * self._from + np.sign(route) * np.minimum(along, np.abs(route))
        return x, y


# Channel -> its popularity, and the groups of parameters of a subscription to it. 400 people make about 2,400
# subscriptions, of which about 700 are different; Nguyen counts about 2,200 and 600.
CHANNELS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "reports_of_kind": (0.24, ("kind",)),
    "kind_near_place": (0.16, ("kind", "place")),
    "near_me": (0.04, ("me",)),
    "severe_near_me": (0.03, ("me", "severity")),
    "counts_around": (0.19, ("place",)),
    "worst_three": (0.18, ("place",)),
    "flare_ups": (0.16, ("place", "least")),
}
KM: Final = (1.0, 2.0, 0.5)  # radii, most popular first
SEVERE: Final = (4, 3, 5)
LEAST: Final = (5, 10, 20)


class City:
    """A city with a number of people. ``report_rate_per_s`` is the mean rate of the reports of all kinds together."""

    def __init__(self, seed: int = 0, people: int = 400, *, report_rate_per_s: float = 5.5) -> None:
        for knob, value, least in (("seed", seed, 0), ("people", people, 1)):
            if value < least:
                raise BadKnob("city", knob, value, f"at least {least}")
        if not 0.0 <= report_rate_per_s <= 10_000.0:
            raise BadKnob("city", "report_rate_per_s", report_rate_per_s, "in [0, 10000]")
        self.seed = seed
        self.names = tuple(f"p{number:04}" for number in range(people))
        self.time_s = 0.0
        self._movement = _Movement(seed, people)
        self._kind_weight = _popularity(len(KINDS))
        per_emergency = float(self._kind_weight @ np.array([mean for mean, _ in KINDS.values()]))
        self._emergencies_per_s = report_rate_per_s / per_emergency
        self._slots: dict[int, list[Report]] = {}

    def step(self, dt_s: float) -> Positions:
        """Advance the time and return the positions of all people."""
        if not 0.0 <= dt_s < math.inf:
            raise BadKnob("city", "dt_s", dt_s, "zero or more, and finite")
        self.time_s += dt_s
        return Positions(self.time_s, *to_earth(*self._movement.at(self.time_s)))

    def reports(self, t0_s: float, t1_s: float) -> list[Report]:
        """Reports with t0_s <= time < t1_s, in order of time. They do not depend on ``step``."""
        if not 0.0 <= t0_s <= t1_s < math.inf:
            raise BadKnob("city", "t0_s, t1_s", (t0_s, t1_s), "such that 0 <= t0_s <= t1_s")
        first = math.floor((t0_s - LINGER_S[1]) / SLOT_S)
        slots = range(first, math.floor(t1_s / SLOT_S) + 1)
        drawn = self._slots
        self._slots = {slot: drawn[slot] if slot in drawn else list(self._draw(slot)) for slot in slots}
        reports = (report for slot in slots for report in self._slots[slot] if t0_s <= report.at_s < t1_s)
        return sorted(reports, key=lambda report: report.at_s)

    def _draw(self, slot: int) -> Iterator[Report]:
        """Reports of the emergencies that begin in a minute. Emergencies before time 0 may have reports after it."""
        minute = slot + math.ceil(LINGER_S[1] / SLOT_S)  # not below 0
        rng = _rng(self.seed, _EMERGENCIES, minute)
        kinds, popular = list(KINDS), _popularity(len(SQUARES))
        for number in range(rng.poisson(self._emergencies_per_s * SLOT_S)):
            kind = kinds[rng.choice(len(kinds), p=self._kind_weight)]
            square = SQUARES[rng.choice(len(SQUARES), p=popular)]
            near = rng.normal((square.x * BLOCK_M, square.y * BLOCK_M), SPREAD_M[0])
            place = near if rng.random() < TO_SQUARES else rng.uniform(0.0, SIDE_M, 2)
            began_s, severity = SLOT_S * (slot + rng.random()), rng.integers(1, 5, endpoint=True)
            mean, sight = KINDS[kind]
            count = 1 + rng.poisson(mean - 1.0)
            until, mean_s = -math.expm1(-LINGER_S[1] / LINGER_S[0]), LINGER_S[0]
            at_s = began_s - mean_s * np.log1p(-until * rng.random(count))  # exponential, cut off at the end
            lat, lon = to_earth(*np.clip(rng.normal(place, SPREAD_M[1], (count, 2)), 0.0, SIDE_M).T)
            felt = np.clip(severity + rng.integers(-1, 1, count, endpoint=True), 1, 5)
            location = f" ({square.name})" if place is near else ""
            columns = (at_s.tolist(), lat.round(6).tolist(), lon.round(6).tolist(), felt.tolist())
            for at, a, b, how_bad in zip(*columns, strict=True):
                yield Report(at, 1_000 * minute + number, kind, a, b, how_bad, f"{sight} {_details(rng)}{location}")

    def subscriptions(self, person: int) -> list[tuple[str, dict[str, Any]]]:
        """A person's subscriptions, as channel and parameters: one to five channels, one to three of each."""
        rng = _rng(self.seed, _SUBSCRIPTIONS, person)
        popular = [weight for weight, _ in CHANNELS.values()]
        chosen = rng.choice(list(CHANNELS), rng.integers(1, 5, endpoint=True), replace=False, p=popular).tolist()
        subscriptions = []
        for channel in chosen:
            _, parts = CHANNELS[channel]
            count = rng.integers(1, 3, endpoint=True)
            different: list[dict[str, Any]] = []
            while len(different) < count:
                params: dict[str, Any] = {}
                for part in parts:
                    params |= self._part(part, person, rng)
                if params not in different:
                    different.append(params)
            subscriptions += [(channel, params) for params in different]
        return subscriptions

    def _part(self, part: str, person: int, rng: np.random.Generator) -> dict[str, Any]:
        """Random values of a group of parameters."""
        if part == "kind":
            return {"kind": _one_of(rng, tuple(KINDS))}
        if part == "place":
            square = _one_of(rng, SQUARES)
            return {"lat": square.lat, "lon": square.lon, "km": _one_of(rng, KM)}
        if part == "me":
            return {"user": self.names[person], "km": _one_of(rng, KM)}
        return {part: _one_of(rng, SEVERE if part == "severity" else LEAST)}


def _one_of(rng: np.random.Generator, values: Sequence[T]) -> T:
    """Choose one of the values, which are in order of popularity, most popular first."""
    return values[int(rng.choice(len(values), p=_popularity(len(values))))]


def _details(rng: np.random.Generator) -> str:
    room = int(rng.integers(*WORDS))
    sentences: list[str] = []
    for row in rng.permutation(len(DETAILS)).tolist():
        sentences.append(DETAILS[row])
        room -= len(DETAILS[row]) + 1
        if room < 0:
            break
    return " ".join(sentences)
