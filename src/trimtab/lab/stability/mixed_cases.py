"""Cases of topics that are placed as a whole, and of fleets whose topics are placed by different units."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.settings import Settings
from trimtab.lab.stability.case import Case, Event
from trimtab.lab.stability.register import case

if TYPE_CHECKING:
    from trimtab.model.placement import Unit
    from trimtab.model.workload import Floats, Rows

BROKERS: Final = 5
TOPICS: Final = 90
CLIENTS: Final = 150


def fleet(
    rng: np.random.Generator, name: str, about: str, units: tuple[Unit, ...] = ("topic", "client", "link"), **more: Any
) -> Case:
    """A randomly placed fleet whose topics take the units in turn. A topic has a publisher and 1 to 6 subscribers."""
    rate = np.exp(rng.uniform(np.log(1e3), np.log(1e4), TOPICS))
    count = rng.integers(1, 7, size=TOPICS)
    topic = np.repeat(np.arange(TOPICS), count).astype(np.int32)
    client = np.concatenate([rng.choice(CLIENTS, number, replace=False) for number in count]).astype(np.int32)
    publisher = rng.integers(CLIENTS, size=TOPICS).astype(np.int32)
    placed_by = tuple(units[row % len(units)] for row in range(TOPICS))
    base = Case(
        name, about, BROKERS, rate, topic, client, np.zeros(0, np.int32), units=placed_by, publisher=publisher, **more
    )  # fmt: skip
    return replace(base, home=rng.integers(BROKERS, size=len(base.keys)).astype(np.int32))


def skewed(rng: np.random.Generator, base: Case, share: float = 0.5) -> Case:
    """Move a random share of all keys to the first broker."""
    home = base.home.copy()
    home[rng.random(len(home)) < share] = 0
    return replace(base, home=home)


def levelled(base: Case) -> Case:
    """Place each key, heaviest first, at the broker with the least load. A key's weight is its load without others."""
    alone = np.zeros(len(base.keys))
    alive = np.ones(base.brokers, bool)
    for row in range(len(base.keys)):
        home = np.full(len(base.keys), 1, np.int32)
        home[row] = 0
        alone[row] = base.load(base.rate, home, alive)[0]
    placed, load = np.zeros(len(alone), np.int32), np.zeros(base.brokers)
    for row in np.argsort(-alone, kind="stable").tolist():
        placed[row] = int(np.argmin(load))
        load[placed[row]] += alone[row]
    return replace(base, home=placed)


def topics_of(base: Case, broker: int) -> Rows:
    """(K,) topics with a subscription at the broker."""
    carried = base.home[base.owner[: len(base.topic)]] == broker
    return np.isin(np.arange(len(base.rate)), base.topic[carried]).astype(np.int32)


@case("ninety topics placed as a whole, half of them at one broker of five")
def _topics_skew(rng: np.random.Generator, name: str, about: str) -> Case:
    return skewed(rng, fleet(rng, name, about, ("topic",)))


@case("topics placed as a whole; a broker dies and returns after five minutes")
def _topics_broker_dies(rng: np.random.Generator, name: str, about: str) -> Case:
    events = (Event(120, "dies", 2), Event(420, "returns", 2))
    return levelled(fleet(rng, name, about, ("topic",), events=events))


@case("one topic, placed as a whole, has most of the load; half of all keys at one broker")
def _giant_topic(rng: np.random.Generator, name: str, about: str) -> Case:
    base = fleet(rng, name, about, ("topic",))
    rate = base.rate.copy()
    rate[0] = 2.0 * rate[1:].sum()
    return skewed(rng, replace(base, rate=rate))


@case("topics placed as a whole, by client and by link, a third each; half of all keys at one broker")
def _mixed_skew(rng: np.random.Generator, name: str, about: str) -> Case:
    return skewed(rng, fleet(rng, name, about))


@case("mixed units, level; rates measured with 10 % noise")
def _mixed_noise(rng: np.random.Generator, name: str, about: str) -> Case:
    return levelled(fleet(rng, name, about, noise=0.1))


@case("mixed units; brokers are restarted one after the other, 20 s each")
def _mixed_rolling_restart(rng: np.random.Generator, name: str, about: str) -> Case:
    events = [
        event
        for broker in range(BROKERS)
        for event in (Event(60 + 90 * broker, "dies", broker), Event(80 + 90 * broker, "returns", broker))
    ]
    return levelled(fleet(rng, name, about, events=tuple(events)))


@case("mixed units; the topics of one broker are loud from the fifth to the tenth minute")
def _mixed_rush(rng: np.random.Generator, name: str, about: str) -> Case:
    base = levelled(fleet(rng, name, about))
    loud = topics_of(base, 1).astype(bool)

    def changing(second: int) -> Floats:
        return np.where(loud & (300 <= second < 600), 5.0, 1.0)

    return replace(base, changing=changing, changes=(300, 600))


@case("subscribers are level, but all publishers are at one broker, which forwards all messages")
def _publishers_at_one(rng: np.random.Generator, name: str, about: str) -> Case:
    base = fleet(rng, name, about, ("client",))
    publisher = np.asarray(CLIENTS + np.arange(TOPICS) % 60, np.int32)  # clients without subscriptions
    base = replace(base, publisher=publisher, home=np.zeros(CLIENTS + 60, np.int32))
    home = np.arange(len(base.home), dtype=np.int32) % BROKERS
    home[CLIENTS:] = 0
    return replace(base, home=home)


@case("communities spread over all brokers, although a community at one broker would need fewer copies")
def _communities(rng: np.random.Generator, name: str, about: str) -> Case:
    groups, members, shared = 100, 8, 3  # topics that every member of a group subscribes to
    rate = np.full(groups * shared, 1e3)
    group = np.repeat(np.arange(groups), members)
    topic = (group[:, None] * shared + np.arange(shared)).ravel().astype(np.int32)
    client = np.repeat(np.arange(groups * members), shared).astype(np.int32)
    home = (np.arange(groups * members) % BROKERS).astype(np.int32)
    return Case(name, about, BROKERS, rate, topic, client, home, settings=Settings(budget=1.0))
