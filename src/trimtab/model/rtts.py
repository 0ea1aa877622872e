"""Measured round-trip times between clients and brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from trimtab.errors import BadTable

if TYPE_CHECKING:
    from trimtab.model.workload import Floats, Rows


@dataclass(frozen=True, eq=False)
class Rtts:
    """Pairs of a client and a broker, each listed once, checked and made read-only on entry."""

    name: ClassVar[str] = "rtt"
    client: Rows  # (N,) row in clients
    broker: Rows  # (N,) row in brokers
    rtt_ms: Floats  # (N,) finite, zero or more
    skipped: int = 0  # rows that were left out because their rtt_ms was empty or negative

    def __post_init__(self) -> None:
        for column, kind in (("client", np.int32), ("broker", np.int32), ("rtt_ms", np.float64)):
            values = np.array(getattr(self, column), dtype=kind)
            values.flags.writeable = False
            object.__setattr__(self, column, values)
        if not len(self.client) == len(self.broker) == len(self.rtt_ms):
            raise BadTable(self.name, "client, broker and rtt_ms differ in length")
        bad = np.flatnonzero(~_usable(self.rtt_ms))
        if len(bad):
            row = int(bad[0])
            raise BadTable(self.name, f"rtt_ms is {self.rtt_ms[row]:g}, but must be a finite number, zero or more", row)

    @classmethod
    def measured(cls, client: Any, broker: Any, rtt_ms: Any) -> Rtts:
        """The pairs with a usable time; the others are counted."""
        good = _usable(np.asarray(rtt_ms, np.float64))
        clients, brokers, times = (np.asarray(values)[good] for values in (client, broker, rtt_ms))
        return cls(clients, brokers, times, int(np.count_nonzero(~good)))

    @classmethod
    def matrix(cls, rtt_ms: Any) -> Rtts:
        """All pairs, from a matrix of clients by brokers; NaN where a pair was not measured."""
        times = np.asarray(rtt_ms, np.float64)
        client, broker = (rows.astype(np.int32) for rows in np.nonzero(~np.isnan(times)))
        return cls(client, broker, times[client, broker])

    def renumbered(self, client: Rows, broker: Rows) -> Rtts:
        """The same pairs in other tables, given the new row of every client and broker; -1: it is not there."""
        clients, brokers = client[self.client], broker[self.broker]
        kept = (clients >= 0) & (brokers >= 0)
        return Rtts(clients[kept], brokers[kept], self.rtt_ms[kept], self.skipped)

    def __len__(self) -> int:
        return len(self.client)


def _usable(times: Floats) -> Any:
    return (times >= 0.0) & (times < np.inf)
