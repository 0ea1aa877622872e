"""Data types: workloads of a fleet, placements on its brokers, and judgements of placements."""
