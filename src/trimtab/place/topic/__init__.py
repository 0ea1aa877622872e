"""Policies that place whole topics: k-topic co-location on few brokers (Khare et al., SEC'18)."""
