"""A processor for brokers that share a machine: see ``trimtab.lab.slow_core``."""

from trimtab.lab.slow_core import SLOWER, work

__all__ = ["SLOWER", "work"]
