"""Brokers for new clients and topics: applies the rule of first placements to the brokers' loads and capacities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.place.first import Candidate, FirstPlacement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.registry import Registry
    from trimtab.observe.report import BrokerReport

FRESH: Final = 0.3  # weight of the newest report in the average of a broker's load


class FirstBrokers:
    """Call ``reported`` with every report of a broker, and ``choose`` for every new client or topic."""

    def __init__(self, registry: Registry, rule: str) -> None:
        self._registry = registry
        self._placement = FirstPlacement(rule)
        self._load: dict[str, float] = {}  # broker -> bytes/s in and out, a moving average

    def reported(self, report: BrokerReport) -> None:
        load = (report.in_bytes + report.out_bytes) / max(report.period_s, 0.1)
        before = self._load.get(report.broker, load)
        self._load[report.broker] = before + FRESH * (load - before)

    def choose(self, now: float, brokers: Sequence[str], position: tuple[float, float] | None) -> str | None:
        about, count = self._registry.brokers(), self._registry.count
        bandwidth = [about[name].bandwidth for name in brokers]
        alike = any(limit is None for limit in bandwidth)
        candidates = [
            Candidate(
                name, self._load.get(name, 0.0), 1.0 if alike or limit is None else limit, count[name],
                about[name].position,
            )
            for name, limit in zip(brokers, bandwidth, strict=True)
        ]  # fmt: skip
        return self._placement.choose(now, candidates, position)
