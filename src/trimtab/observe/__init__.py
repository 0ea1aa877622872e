"""Measurements of the running fleet, as mergeable summaries of constant size."""
