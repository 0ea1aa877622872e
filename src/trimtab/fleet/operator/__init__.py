"""The operator's interface to a running fleet: for the command line, experiments and benchmarks."""

from trimtab.fleet.operator.operator import Operator

__all__ = ["Operator"]
