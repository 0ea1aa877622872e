"""Starts the parts of a fleet on a machine: configuration of nats-server, processes, credentials."""
