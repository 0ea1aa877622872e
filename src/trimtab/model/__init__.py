"""The nouns: what a fleet carries, who serves it, and how good that is."""
