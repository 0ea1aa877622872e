"""NATS as Spark needs it: stored messages into columns, results out in bulk, without an event loop."""
