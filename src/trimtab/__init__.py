"""Keeps a fleet of publish/subscribe brokers in balance."""
