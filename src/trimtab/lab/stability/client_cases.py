"""Cases on which balancers are known to oscillate or to do nothing (apache/pulsar PIP-364, #16059, #21174, #21722;
linkedin/cruise-control #664, #2274; nats-io/jsm.go #748; nats-io/nats-server #1556)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.settings import Settings
from trimtab.lab.stability.case import HORIZON_S, PER_CORE, Case, Event, community, even, levelled, skewed
from trimtab.lab.stability.register import case

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

N: Final = 300  # default number of clients


def flat(rng: np.random.Generator, name: str, about: str, brokers: int = 5, clients: int = N, **more: Any) -> Case:
    """A level fleet without events."""
    rate, topic, client = community(rng, clients, shared=10)
    home = levelled(rate, clients, brokers)
    return Case(name, about, brokers, rate, topic, client, home, **more)


def uneven(rng: np.random.Generator, name: str, about: str, brokers: int = 5, **more: Any) -> Case:
    """An uneven fleet without events: half of all clients are at the first broker."""
    rate, topic, client = community(rng, N, shared=10)
    return Case(name, about, brokers, rate, topic, client, skewed(rng, N, brokers), **more)


@case("half of all clients at one broker of five")
def _skew(rng: np.random.Generator, name: str, about: str) -> Case:
    return uneven(rng, name, about)


@case("an empty broker joins ten")
def _idle_newcomer(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    return Case(name, about, 11, rate, topic, client, levelled(rate, N, 10), events=(Event(60, "joins", 10),))


@case("an empty broker joins fifty, so that it hardly changes the spread")
def _idle_among_fifty(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, 2000)
    return Case(name, about, 51, rate, topic, client, levelled(rate, 2000, 50), events=(Event(60, "joins", 50),))


@case("as many empty brokers join as there are")
def _twice_as_many(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    joins = tuple(Event(60, "joins", broker) for broker in range(5, 10))
    return Case(name, about, 10, rate, topic, client, levelled(rate, N, 5), events=joins)


@case("two brokers, one of which has seven in ten clients")
def _two_nodes(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, 60)
    home = (rng.random(60) < 0.3).astype(np.int32)
    return Case(name, about, 2, rate, topic, client, home)


@case("two brokers and three clients, one of which has most of the load")
def _three_clients(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, (topic, client) = np.array([1e4, 4e3, 3e3]), (np.arange(3, dtype=np.int32),) * 2
    return Case(name, about, 2, rate, topic, client, np.array([0, 0, 1], np.int32))


@case("one client has most of the load, so no placement is level")
def _giant_client(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    rate[0] = 2.0 * rate[1:].sum()
    return Case(name, about, 5, rate, topic, client, even(N, 5))


@case("every broker is over 85 % of its bandwidth")
def _all_overloaded(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    bandwidth = 2.0 * rate.sum() / 5 / 0.95
    return Case(name, about, 5, rate, topic, client, levelled(rate, N, 5), bandwidth=np.full(5, bandwidth))


@case("brokers of strengths 1, 1, 2, 4, with equal numbers of clients")
def _unequal_brokers(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    strength = np.array([1.0, 1.0, 2.0, 4.0]) * rate.sum() / 2
    return Case(name, about, 4, rate, topic, client, even(N, 4), bandwidth=strength)


@case("an uneven fleet; the emptiest broker dies while clients move to it")
def _destination_dies(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    home = rng.integers(4, size=N).astype(np.int32)
    home[rng.random(N) < 0.4] = 0
    return Case(
        name, about, 5, rate, topic, client, home, events=(Event(12, "dies", 4), Event(300, "returns", 4))
    )  # fmt: skip


@case("an uneven fleet whose measurements come 30 s late")
def _lagging(rng: np.random.Generator, name: str, about: str) -> Case:
    return uneven(rng, name, about, lag_s=30)


@case("an uneven fleet whose measurements come 90 s late; the load shifts to other clients after 5 minutes")
def _lagging_far(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    home = skewed(rng, N, 5)
    hot = rng.random(N) < 0.2

    def changing(second: int) -> Floats:
        return np.where(hot & (second >= 300), 4.0, 1.0)

    return Case(
        name, about, 5, rate, topic, client, home, lag_s=90, changing=changing, changes=(300,)
    )  # fmt: skip


@case("a level fleet, rates measured with 10 % noise")
def _noise(rng: np.random.Generator, name: str, about: str) -> Case:
    return flat(rng, name, about, noise=0.1)


@case("an uneven fleet, rates measured with 40 % noise")
def _much_noise(rng: np.random.Generator, name: str, about: str) -> Case:
    return uneven(rng, name, about, noise=0.4)


@case("brokers are restarted one after the other, 20 s each")
def _rolling_restart(rng: np.random.Generator, name: str, about: str) -> Case:
    events = [
        event
        for broker in range(5)
        for event in (Event(60 + 90 * broker, "dies", broker), Event(80 + 90 * broker, "returns", broker))
    ]
    return flat(rng, name, about, events=tuple(events))


@case("a broker dies and returns, again and again")
def _flapping(rng: np.random.Generator, name: str, about: str) -> Case:
    events = [
        event
        for start in range(60, 660, 60)
        for event in (Event(start, "dies", 0), Event(start + 25, "returns", 0))
    ]  # fmt: skip
    return flat(rng, name, about, events=tuple(events))


@case("every minute the clients of one broker are loud for 4 s, a second later each time")
def _short_peaks(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about)
    carrier = base.home[np.minimum(np.arange(len(base.rate)), N - 1)]

    def changing(second: int) -> Floats:
        loud = second % 61 < 4 and second >= 61
        return np.where(loud & (carrier == second // 61 % 5), 4.0, 1.0)

    return replace(base, changing=changing)


@case("a district is loud from the fifth to the tenth minute")
def _rush(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about)
    loud = base.home[np.minimum(np.arange(len(base.rate)), N - 1)] == 1

    def changing(second: int) -> Floats:
        return np.where(loud & (300 <= second < 600), 5.0, 1.0)

    return replace(base, changing=changing, changes=(300, 600))


@case("two halves of the clients take turns at being loud, 90 s each")
def _turns(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about, brokers=2)
    half = base.home[np.minimum(np.arange(len(base.rate)), N - 1)] == 0

    def changing(second: int) -> Floats:
        return np.where(half == (second // 90 % 2 == 0), 3.0, 1.0)

    return replace(base, changing=changing, changes=tuple(range(90, HORIZON_S, 90)))


@case("load drifts slowly from place to place, as over a day")
def _drift(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about)
    phase = base.home[np.minimum(np.arange(len(base.rate)), N - 1)] * 2 * np.pi / 5

    def changing(second: int) -> Floats:
        return np.asarray(1.0 + 0.8 * np.sin(2 * np.pi * second / HORIZON_S + phase))

    return replace(base, changing=changing, changes=tuple(range(60, HORIZON_S, 60)))


@case("an uneven fleet in which every move to the emptiest broker fails")
def _refusing_broker(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, topic, client = community(rng, N)
    home = rng.integers(4, size=N).astype(np.int32)
    home[rng.random(N) < 0.4] = 0
    return Case(name, about, 5, rate, topic, client, home, refuses=(4,))


@case("a broker has load that no client causes")
def _load_besides(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about)
    other_load = np.array([base.rate.sum() * 0.4, 0.0, 0.0, 0.0, 0.0])
    return replace(base, other_load=other_load)


@case("an uneven fleet with hardly any load")
def _hardly_any_load(rng: np.random.Generator, name: str, about: str) -> Case:
    base = uneven(rng, name, about)
    return replace(base, rate=base.rate * 1e-3, settings=Settings(beta=1e3))


def chatty(rng: np.random.Generator, share: float) -> tuple[Floats, Floats]:
    """Rates and message sizes. A share of the clients has small messages, hence many more messages."""
    rate, _, _ = community(rng, N)
    return rate, np.where(np.arange(N) < share * N, 20.0, 1000.0)


@case("level in bytes, but all clients with small messages are at one broker, which has too many of them")
def _chatty_broker(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, size = chatty(rng, 0.2)
    rows = np.arange(N, dtype=np.int32)
    home = np.where(rows < 0.2 * N, 0, 1 + levelled(rate[rows], N, 4)).astype(np.int32)
    messages = 2.0 * float((rate / size)[: N // 5].sum())  # in and out
    return Case(
        name, about, 5, rate, rows, rows, home, size=size, settings=Settings(messages=0.6 * messages)
    )  # fmt: skip


@case("an uneven fleet; the emptiest broker has too few cores for the messages that would level the bytes")
def _small_machine(rng: np.random.Generator, name: str, about: str) -> Case:
    rate, size = chatty(rng, 0.5)
    rows = np.arange(N, dtype=np.int32)
    all_cores = 2.0 * float((rate / size).sum()) / PER_CORE
    cores = np.array([1.0, 1.0, 1.0, 1.0, 0.08]) * all_cores
    home = rng.integers(4, size=N).astype(np.int32)
    home[rng.random(N) < 0.4] = 0
    return Case(name, about, 5, rate, rows, rows, home, size=size, cores=cores)


@case("a level fleet whose traffic comes in bursts, once a minute; the clients of a broker burst at the same time")
def _bursts(rng: np.random.Generator, name: str, about: str) -> Case:
    base = flat(rng, name, about)
    carrier = base.home[np.minimum(np.arange(len(base.rate)), N - 1)]

    def changing(second: int) -> Floats:
        return np.where((second + 12 * carrier) % 60 == 0, 60.0, 0.0)

    return replace(base, changing=changing)
