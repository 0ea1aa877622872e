"""Network coordinates: models that place a node by the round-trip times of its own probes, and made-up networks."""
