"""Policies that place units on brokers, and the judge that computes the figures of every placement."""
