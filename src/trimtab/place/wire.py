"""Wire load: the traffic of brokers' servers, including publications on their way to other brokers.

A publication enters at its publisher's broker and goes on to every other broker that has a subscriber, one copy each.
Let ``p[j,k]`` be the data of topic k published at broker j, ``n[j,k]`` its subscribers there, and ``z[j,k] = 1`` if
there are any. Then a plain topic of data rate ``d[k]`` takes

    in[j]  = sum_k p[j,k] + z[j,k] * (d[k] - p[j,k])
    out[j] = sum_k d[k] * n[j,k] + p[j,k] * (other brokers with z = 1)

Publications of a topic with a processor or a store are passed to it at the broker where they enter, and come back as
results. So they cross that server twice: ``relayed`` is the share of such publications. Results may be larger or
smaller than publications. A topic that feeds the data cluster sends one more copy to the hub (``taps``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB, SUB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows, Workload

DENSE: Final = 64  # longest table of marks, as a multiple of the numbers to be marked


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """Traffic per second in and out of every broker's server."""

    incoming: Floats  # (B,)
    outgoing: Floats  # (B,)

    @property
    def total(self) -> Floats:
        return self.incoming + self.outgoing


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The traffic of a workload, in data or in messages per second, independent of the placement."""

    published: Floats  # (K,) by all publishers of a topic together
    delivered: Floats  # (K,) to one subscriber
    relayed: Floats  # (K,) share of publications that pass a processor or a store at their broker
    taps: Floats  # (K,) copies that leave the fleet
    topic: Rows  # (L,) of every link
    publishes: NDArray[np.bool_]  # (L,) True: the link publishes; False: it subscribes
    weight: Floats  # (L,) share of the topic's publications, or number of subscriptions

    @classmethod
    def of(cls, workload: Workload, *, in_messages: bool = False) -> Traffic:
        topics, links = workload.topics, workload.links
        published = topics.rate if in_messages else topics.data_rate
        delivered = published
        if topics.out_rate is not None:
            size = 1.0 if in_messages or topics.out_bytes is None else topics.out_bytes
            delivered = np.where(np.isnan(topics.out_rate), published, topics.out_rate * size)
        none = np.zeros(len(topics))
        relayed, taps = (none if values is None else values for values in (topics.relayed, topics.taps))
        return cls(published, delivered, relayed, taps, links.topic, links.role == PUB, weights(workload))

    def wire(self, carrier: Rows, brokers: int) -> Wire:
        """The wire load if ``carrier`` is the broker of every link, or UNPLACED. O(L log L)."""
        incoming, outgoing = np.zeros(brokers), np.zeros(brokers)
        carried = carrier != UNPLACED
        count = max(len(self.published), 1)

        row = np.flatnonzero(carried & ~self.publishes)
        topic, broker = self.topic[row], carrier[row]
        _add(outgoing, broker, self.delivered[topic] * self.weight[row])
        # Pairs of broker and topic with z = 1.
        wanted = distinct(broker.astype(np.int64) * count + topic, brokers * count)
        _add(incoming, wanted // count, self.delivered[wanted % count])
        places = np.bincount(wanted % count, minlength=count)  # brokers with z = 1, by topic

        row = np.flatnonzero(carried & self.publishes)
        if len(row):
            topic, broker, share = self.topic[row], carrier[row], self.weight[row]
            published, delivered = self.published[topic] * share, self.delivered[topic] * share
            relayed = self.relayed[topic]
            here = _contains(wanted, broker.astype(np.int64) * count + topic)
            _add(incoming, broker, published + relayed * delivered - here * delivered)
            _add(outgoing, broker, relayed * published + delivered * (places[topic] - here + self.taps[topic]))
        return Wire(incoming, outgoing)

    def own(self, owner: Rows, carrier: Rows, keys: int, whole: NDArray[np.bool_]) -> Floats:
        """(keys,) load of a key at its broker besides its subscriptions, whatever other keys are there.

        This is the load of its publications, with the present placement of subscribers. For topics that are placed as a
        ``whole`` (K,), it is the load of all their links, since they move together.
        """
        count = max(len(self.published), 1)
        amount = np.zeros(keys)
        placed = (owner >= 0) & (carrier != UNPLACED)
        row = np.flatnonzero(placed & ~self.publishes & whole[self.topic])
        _add(amount, owner[row], self.delivered[self.topic[row]] * self.weight[row])
        subscribed = np.flatnonzero((carrier != UNPLACED) & ~self.publishes)
        brokers = int(carrier.max(initial=-1)) + 1
        wanted = distinct(carrier[subscribed].astype(np.int64) * count + self.topic[subscribed], brokers * count)
        places = np.bincount(wanted % count, minlength=count)
        row = np.flatnonzero(placed & self.publishes)
        topic, share, relayed = self.topic[row], self.weight[row], self.relayed[self.topic[row]]
        published, delivered = self.published[topic] * share, self.delivered[topic] * share
        here = _contains(wanted, carrier[row].astype(np.int64) * count + topic)
        alone = published + relayed * (published + delivered) + self.taps[topic] * delivered
        shared = delivered * (places[topic] - here) - here * delivered
        _add(amount, owner[row], np.maximum(alone + np.where(whole[topic], 0.0, shared), 0.0))
        return amount


def weights(workload: Workload) -> Floats:
    """(L,) the weight of every link. By default, publishers of a topic have equal shares, and every subscriber
    subscribes once."""
    links = workload.links
    if links.weight is not None:
        return links.weight
    publishers = np.bincount(links.topic[links.role == PUB], minlength=len(workload.topics))
    return np.where(links.role == SUB, 1.0, 1.0 / np.maximum(publishers[links.topic], 1))


def distinct(numbers: NDArray[np.int64], below: int) -> NDArray[np.int64]:
    """The distinct numbers in order. Marks them in a table where that is not much longer than the list: O(n)."""
    if below > DENSE * len(numbers):
        return np.unique(numbers)
    there = np.zeros(below, bool)
    there[numbers] = True
    return np.flatnonzero(there)


def _add(total: Floats, row: Rows | NDArray[np.int64], amount: Floats) -> None:
    total += np.bincount(row, weights=amount, minlength=len(total))


def _contains(ordered: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.asarray(ordered[at] == wanted)
