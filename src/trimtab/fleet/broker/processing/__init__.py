"""Processors: what a topic's own function makes of its messages, in a process of its own (Khare, SEC'18, IV-A)."""
