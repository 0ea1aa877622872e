"""The newest round-trip times that a process has measured to a number of others.

The typical time of a peer is the lower quartile of its newest samples. A busy process or a queue only adds to a sample,
so NTP even takes the least one (RFC 5905, Section 10); the quartile also drops a single sample that is too short.
"""

from __future__ import annotations

from typing import Final

from trimtab.observe.coordinates.node import MOST_RTT_MS

SAMPLES: Final = 5  # of each peer


class RecentRtts:
    """Times of at most ``most`` peers; the one measured longest ago is dropped first. Callers say what time it is."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._samples: dict[str, list[float]] = {}  # in the order in which peers were last measured
        self._at: dict[str, float] = {}

    def add(self, peer: str, rtt_ms: float, at: float) -> bool:
        """Take a sample; False if no round trip can take that long, or no time at all."""
        if not 0.0 < rtt_ms <= MOST_RTT_MS:
            return False
        samples = self._samples.pop(peer, [])
        self._samples[peer] = [*samples[1 - SAMPLES :], rtt_ms]
        self._at[peer] = at
        if len(self._samples) > self._most:
            self.forget(next(iter(self._samples)))
        return True

    def typical(self, peer: str) -> float | None:
        """The lower quartile of the peer's samples: the second smallest of five. None: it was not measured."""
        samples = sorted(self._samples.get(peer, ()))
        return samples[(len(samples) - 1) // 4] if samples else None

    def nearest(self, most: int) -> dict[str, float]:
        """The typical times of the nearest peers, the nearest first; of equal ones, in the order of their names."""
        times = sorted((self.typical(peer) or 0.0, peer) for peer in self._samples)
        return {peer: rtt_ms for rtt_ms, peer in times[:most]}

    def last(self, peer: str) -> float | None:
        """When the peer was last measured."""
        return self._at.get(peer)

    def expire(self, before: float) -> list[str]:
        """Forget peers that were last measured before that time, and return their names."""
        gone = [peer for peer, at in self._at.items() if at < before]
        for peer in gone:
            self.forget(peer)
        return gone

    def forget(self, peer: str) -> None:
        self._samples.pop(peer, None)
        self._at.pop(peer, None)

    def clear(self) -> None:
        self._samples.clear()
        self._at.clear()

    def __contains__(self, peer: object) -> bool:
        return peer in self._samples
