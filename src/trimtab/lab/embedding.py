"""Coordinates of brokers and of the gateways of clients, from a simulated network of nodes that probe each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.observe.coordinates.probing import Noise, Probing
from trimtab.observe.coordinates.registry import coordinate_model

if TYPE_CHECKING:
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats

ROUNDS: Final = 600  # probes of each node: ten minutes of Serf (Gupta et al., SEC'21, 5.5.1)
NOISE: Final = Noise(jitter=0.05, outliers=0.01, factor=5.0)


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Places with a broker and a gateway of clients each."""

    broker: Coordinates  # (S,)
    gateway: Coordinates  # (S,)
    measured_ms: Floats  # (S, S) from a gateway to a broker that it probed, filtered; NaN: not probed

    @classmethod
    def embedded(cls, between_ms: Floats, gateway_ms: Floats, model: str, peers: int, seed: int) -> Sites:
        """Embed brokers, with (S, S) round-trip times ``between_ms``, and gateways, with ``gateway_ms`` (S, S) to the
        brokers. A gateway reaches another one over the broker of that one's place.

        Every node has ``peers`` random peers, and a gateway also probes the broker of its own place, which its clients
        are attached to.
        """
        count = len(between_ms)
        access = np.diagonal(gateway_ms)
        others = gateway_ms + access[None, :]
        np.fill_diagonal(others, 0.0)
        truth = np.block([[between_ms, gateway_ms.T], [gateway_ms, others]])
        chosen = coordinate_model(model)
        random = Probing.random(truth, min(peers, 2 * count - 1), seed).peers
        own = [np.union1d(random[count + site], [site]) for site in range(count)]
        probing = Probing(truth, (*random[:count], *own))
        samples = probing.samples(ROUNDS, seed, both_ends=chosen.both_ends, noise=NOISE)
        embedding = chosen.simulate(samples, seed)
        measured = np.full((2 * count, 2 * count), np.nan)
        measured[embedding.learner, embedding.teacher] = embedding.measured_ms
        sites = np.arange(count, dtype=np.int32)
        return cls(embedding.coordinates.take(sites), embedding.coordinates.take(count + sites),
                   measured[count:, :count])  # fmt: skip
