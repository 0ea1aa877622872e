"""Network latencies of a workload: measured round-trip times, else those that network coordinates estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from trimtab.errors import MissingColumn
from trimtab.model.rtts import Rtts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats, Rows, Workload

AT_ONCE: Final = 1 << 22  # most numbers of an intermediate result

Source = Literal["measured", "estimated", "mixed"]


@dataclass(frozen=True, eq=False)
class Network:
    """Round-trip times between the clients and the brokers of a workload. A measured pair overrides its estimate."""

    client: Coordinates | None
    broker: Coordinates | None
    begin: Rows  # (clients + 1,) first measured pair of each client
    measured_broker: Rows  # (N,) broker of each measured pair, in the order of clients, then of brokers
    measured_ms: Floats  # (N,)
    brokers: int

    @classmethod
    def of(cls, workload: Workload) -> Network | None:
        """None if the workload has neither measured pairs nor coordinates of both clients and brokers."""
        rtt, client, broker = workload.rtt, workload.clients.coordinate, workload.brokers.coordinate
        both = client is not None and broker is not None
        if rtt is None and not both:
            return None
        if rtt is None:
            rtt = Rtts.matrix(np.zeros((0, 0)))
        order = np.lexsort((rtt.broker, rtt.client))
        count = np.bincount(rtt.client, minlength=len(workload.clients))
        begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
        measured = rtt.broker[order], rtt.rtt_ms[order]
        return cls(client if both else None, broker if both else None, begin, *measured, len(workload.brokers))

    @classmethod
    def needed(cls, workload: Workload, why: str) -> Network:
        """The network; if the workload has no latencies, an error that names the column."""
        network = cls.of(workload)
        if network is None:
            table = workload.clients if workload.clients.coordinate is None else workload.brokers
            raise MissingColumn(table.name, "coordinate", table.present(), why)
        return network

    def known(self) -> NDArray[np.bool_]:
        """(clients,) whether the latency to some broker is known."""
        some = np.diff(self.begin) > 0
        if self.client is not None and self.broker is not None and self.broker.known.any():
            some |= self.client.known
        return np.asarray(some)

    def rtt_ms(self, clients: Rows, brokers: Rows) -> Floats:
        """(len(clients), len(brokers)) round-trip times; NaN where neither a measurement nor an estimate exists.

        The rows of ``brokers`` must differ.
        """
        result = np.full((len(clients), len(brokers)), np.nan)
        if self.client is not None and self.broker is not None:
            at, width = self.broker.take(brokers), max(len(brokers) * self.broker.point.shape[1], 1)
            step = max(1, AT_ONCE // width)
            for first in range(0, len(clients), step):
                result[first : first + step] = self.client.take(clients[first : first + step]).rtt_ms(at)
        row, column, pair = self._pairs(clients, brokers)
        result[row, column] = self.measured_ms[pair]
        return result

    def pair_ms(self, client: Rows, broker: Rows) -> Floats:
        """(N,) round-trip times of N pairs, given by their rows; NaN where none is known."""
        result = np.full(len(client), np.nan)
        if self.client is not None and self.broker is not None:
            step = max(1, AT_ONCE // self.broker.point.shape[1])
            for first in range(0, len(client), step):
                part = slice(first, first + step)
                result[part] = self.client.take(client[part]).pair_ms(self.broker.take(broker[part]))
        if len(self.measured_ms):
            owner = np.repeat(np.arange(len(self.begin) - 1, dtype=np.int64), np.diff(self.begin))
            key, wanted = owner * self.brokers + self.measured_broker, client.astype(np.int64) * self.brokers + broker
            at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            result = np.where(key[at] == wanted, self.measured_ms[at], result)
        return result

    def source(self, clients: Rows) -> Source:
        """Where the latencies between these clients and all brokers come from."""
        measured = int((self.begin[clients + 1] - self.begin[clients]).sum())
        if not measured:
            return "estimated"
        return "measured" if measured == len(clients) * self.brokers else "mixed"

    def _pairs(self, clients: Rows, brokers: Rows) -> tuple[Rows, Rows, Rows]:
        """The measured pairs among these clients and brokers: row and column of the matrix, and the pair."""
        column_of = np.full(self.brokers, -1, np.int32)
        column_of[brokers] = np.arange(len(brokers))
        begin, count = self.begin[clients], self.begin[np.asarray(clients) + 1] - self.begin[clients]
        row = np.repeat(np.arange(len(clients), dtype=np.int32), count)
        pair = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(begin, count)
        column = column_of[self.measured_broker[pair]]
        wanted = column >= 0
        return row[wanted], column[wanted], pair[wanted].astype(np.int32)
