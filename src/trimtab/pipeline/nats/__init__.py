"""NATS client for Spark: reads stored messages into columns and publishes in bulk, without an event loop."""
