"""Hardware profiles: the parameters of a broker's machine that decide the latency of the topics it hosts.

With ``m`` topics in processing at the same time, each of them runs at the speed

    v(m) = min(1, C(m) / m) / [(1 + contention * (min(m, cores) - 1) ** exponent) * (1 + switching * max(0, m - cores))]

where ``C(m)`` is the number of cores in use, siblings of hardware threads included, of those that other processes
leave. The number of cores can be a fraction, as of a container: with half a core, a topic runs at half the speed.
``contention`` is the slowdown by shared caches and memory, ``switching`` that by context switches.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob, UnknownName

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

NOMINAL, MEASURED = "nominal", "measured"  # processing times: what a processor is told, or what brokers report
VERSION: Final = 1  # of the fields of a profile
LEFT: Final = 0.05  # share of the cores that other processes leave at least


@dataclass(frozen=True, slots=True)
class Hardware:
    """A named profile; times in milliseconds."""

    name: str
    cores: float = 4
    service: tuple[tuple[float, float], ...] = ((0.0, 0.0), (1.0, 1.0))  # nominal -> real CPU time of one message
    contention: float = 0.0
    exponent: float = 1.0  # of contention; below 1, the first neighbour costs most
    switching: float = 0.0
    sibling: float = 0.0  # share of a core that the second hardware thread of each core adds
    message_cv: float = 0.0  # coefficient of variation of the CPU time of messages
    run_sd: float = 0.0  # standard deviation of the machine's speed from run to run
    network_ms: float = 0.0  # from publisher to broker to subscriber
    jitter_ms: float = 0.0  # scale of the half-normal delay on top
    fanout_ms: float = 0.0  # CPU time for one more subscriber
    drift: float = 0.1  # standard deviation of a publisher's interval, as a share of it
    poisson: bool = False  # exponential intervals instead
    quantum_ms: float = 0.0  # time slice of the scheduler; 0: cores are shared continuously
    background: float = 0.0  # cores in use by other work
    overhead_ms: float = 0.0  # CPU time of one message in other processes of the machine: server, agent, clients
    processing: str = NOMINAL  # meaning of the first numbers of ``service``, and of workloads' processing times

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "service", "processing"):
                continue
            if field.name == "poisson":
                if not isinstance(value, bool):
                    raise BadKnob("hardware", field.name, value, "true or false")
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
                raise BadKnob("hardware", field.name, value, "a number, zero or more, and finite")
        if not isinstance(self.name, str):
            raise BadKnob("hardware", "name", self.name, "text")
        if self.processing not in (NOMINAL, MEASURED):
            raise BadKnob("hardware", "processing", self.processing, f"{NOMINAL} or {MEASURED}")
        if not self.cores > 0.0:
            raise BadKnob("hardware", "cores", self.cores, "more than zero")
        if self.cores == int(self.cores):
            object.__setattr__(self, "cores", int(self.cores))
        if not self.background < self.cores:
            raise BadKnob("hardware", "background", self.background, f"less than the {self.cores:g} cores")
        nominal, real = np.array(self.service, np.float64).reshape(-1, 2).T if self.service else np.zeros((2, 0))
        rising = np.isfinite(self.service).all() and (np.diff(nominal) > 0.0).all() and (np.diff(real) >= 0.0).all()
        if len(nominal) < 2 or not rising or real[0] < 0.0:
            raise BadInput(f"service of hardware '{self.name}' must rise: two or more pairs (nominal, real), but is "
                           f"{self.service}")  # fmt: skip

    def service_ms(self, processing_ms: Floats) -> Floats:
        """Real CPU time of a message by its nominal one: linear between the calibrated points and beyond the last."""
        nominal, real = np.array(self.service).T
        slope = (real[-1] - real[-2]) / (nominal[-1] - nominal[-2])
        beyond = real[-1] + slope * (np.asarray(processing_ms, np.float64) - nominal[-1])
        return np.asarray(np.where(processing_ms > nominal[-1], beyond, np.interp(processing_ms, nominal, real)))

    def message_ms(self, processing_ms: Floats, subscribers: Floats) -> Floats:
        """Real CPU time of a message and of its copies, one for each subscriber."""
        return np.asarray(self.service_ms(processing_ms) + self.fanout_ms * np.asarray(subscribers, np.float64))

    def for_one_subscriber(self, processing_ms: Floats, subscribers: Floats) -> Floats:
        """Nominal CPU time with which a topic with one subscriber takes as long as this one with its subscribers."""
        nominal_ms = np.asarray(processing_ms, np.float64)
        more = self.fanout_ms * np.maximum(np.asarray(subscribers, np.float64) - 1.0, 0.0)
        if not (more > 0.0).any():
            return nominal_ms
        nominal, real = np.array(self.service).T
        wanted = self.service_ms(nominal_ms) + more
        if wanted.max() > real[-1] and not real[-1] > real[-2]:
            raise BadInput(f"service of hardware '{self.name}' does not rise after {nominal[-2]:g} ms, so it says "
                           "nothing about topics with many subscribers: measure it with longer processing")  # fmt: skip
        beyond = nominal[-1] + (wanted - real[-1]) * (nominal[-1] - nominal[-2]) / max(real[-1] - real[-2], 1e-300)
        longer = np.where(wanted > real[-1], beyond, np.interp(wanted, real, nominal))
        return np.asarray(np.where(more > 0.0, longer, nominal_ms))

    def elsewhere(self, rate: Floats | float) -> Floats:
        """Cores in use by other processes, by the messages/s of all topics together."""
        used = self.background + np.asarray(rate, np.float64) * self.overhead_ms / 1000.0
        return np.asarray(np.minimum(used, (1.0 - LEFT) * self.cores))

    def speeds(self, most: int, rate: Floats | float = 0.0) -> Floats:
        """(most + 1,) the speed of each of ``m`` topics that are in processing, for m = 0 ... ``most``.

        ``rate``: messages/s of all topics together. With a column of S rates, the answer is (S, most + 1).
        """
        m = np.maximum(np.arange(most + 1, dtype=np.float64), 1.0)
        free = self.cores - self.elsewhere(rate)[..., None]
        capacity = np.minimum(m, free) + self.sibling * np.clip(m - free, 0.0, free)
        shared = 1.0 + self.contention * np.maximum(np.minimum(m, self.cores) - 1.0, 0.0) ** self.exponent
        switched = 1.0 + self.switching * np.maximum(m - max(self.cores, 1.0), 0.0)  # one topic alone does not switch
        return np.asarray(np.minimum(capacity / m, 1.0) / (shared * switched))

    def scaled(self, *, cores: float | None = None, speed: float = 1.0) -> Hardware:
        """The same kind of machine with another number of cores, each of them ``speed`` times as fast."""
        if cores is None and speed == 1.0:
            return self
        if not 0.0 < speed < math.inf:
            raise BadKnob("hardware", "speed", speed, "more than zero")
        service = tuple((nominal, real / speed) for nominal, real in self.service)
        fanout = self.fanout_ms / speed
        number = self.cores if cores is None else cores
        background = self.background if self.background < number else (1.0 - LEFT) * number
        return replace(self, cores=number, background=background, service=service, fanout_ms=fanout)

    def as_json(self) -> dict[str, Any]:
        return {"version": VERSION} | asdict(self) | {"service": [list(pair) for pair in self.service]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Hardware:
        if not isinstance(values, dict):
            raise BadInput(f"a hardware profile is a JSON object, but this came: {values!r}")
        version = values.get("version")
        if version != VERSION:
            found = f"this hardware profile is of version {version}, but must be of version {VERSION}"
            raise BadInput(f"{found}: measure it again")
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name != "version"}
        for name in given.keys() - known:
            raise UnknownName("field of a hardware profile", name, sorted(known))
        missing = [name for name in ("name", "cores", "service") if name not in given]
        if missing:
            raise BadInput(f"this hardware profile has no {', '.join(missing)}")
        try:
            service = tuple((float(nominal), float(real)) for nominal, real in given["service"])
        except (TypeError, ValueError, OverflowError):
            raise BadInput(f"service of a hardware profile must be pairs of numbers (nominal, real), but is "
                           f"{given['service']}") from None  # fmt: skip
        return cls(**(given | {"service": service}))


# Khare et al., SEC'18: four 2.5 GHz Xeon cores. The nominal times are arguments of stress-ng there, whose real times
# the paper does not print. They follow from the rates that one thread sustains (78, 37, 24 and 20 messages/s).
PAPER: Final = Hardware(
    "xeon-e5420", cores=4,
    service=((0.0, 5.4), (10.0, 12.85), (20.0, 26.9), (30.0, 41.5), (40.0, 49.5), (50.0, 61.0)),
    contention=0.09, switching=0.045, message_cv=0.10, run_sd=0.005, network_ms=2.0, jitter_ms=1.0, fanout_ms=0.015,
)  # fmt: skip

# A machine of which nothing is known but the CPU time of messages, which brokers measure.
PLAIN: Final = Hardware(
    "plain", cores=2, service=((0.0, 0.2), (1.0, 1.2)), switching=0.005, message_cv=0.10, network_ms=4.0, jitter_ms=1.0,
)  # fmt: skip

_SMALLER: Final = tuple((nominal, 1.5 * real) for nominal, real in PAPER.service)

PROFILES: Final = {
    each.name: each
    for each in (
        PAPER,
        PLAIN,
        Hardware(  # half the cores, slower, more contention
            "two-slow-cores", cores=2, service=_SMALLER, contention=0.18, switching=0.03, message_cv=0.15,
            run_sd=0.005, network_ms=2.0, jitter_ms=1.0, fanout_ms=0.02,
        ),
        Hardware(  # two cores with two threads each, bursts, memory-bound processing
            "two-cores-smt", cores=2, service=_SMALLER, contention=0.10, exponent=0.5, sibling=0.25, message_cv=0.25,
            run_sd=0.005, network_ms=2.0, jitter_ms=1.0, fanout_ms=0.02, poisson=True,
        ),
        Hardware(  # time slices of 20 ms instead of continuous sharing
            "four-cores-quantum", cores=4, service=PAPER.service, contention=0.08, message_cv=0.10, run_sd=0.005,
            network_ms=2.0, jitter_ms=1.0, fanout_ms=0.015, quantum_ms=20.0,
        ),
        Hardware(  # processing that is bound by memory: the second core brings much less than the first
            "memory-bound", cores=4, service=PAPER.service, contention=0.35, exponent=0.7, switching=0.02,
            message_cv=0.20, run_sd=0.01, network_ms=2.0, jitter_ms=2.0, fanout_ms=0.015,
        ),
    )
}  # fmt: skip


def hardware(name: str) -> Hardware:
    if name not in PROFILES:
        raise UnknownName("hardware profile", name, PROFILES)
    return PROFILES[name]
