"""Processors: apply a topic's own function to its messages, in a process of its own (Khare, SEC'18, IV-A)."""
