"""The interface of latency models: they predict the p90 of every topic of a set that shares a broker.

A model is fitted on samples of one kind of hardware. It predicts for sets of up to ``most`` topics. Its upper bounds
are calibrated: of topics that it was not fitted on, the share ``coverage`` stays below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Sets


class LatencyModel(Protocol):
    """Immutable. Rows of all answers are the rows of ``sets``: one per topic."""

    name: ClassVar[str]  # of the predictor that made it: poly4, mlp, trim

    @property
    def hardware(self) -> Hardware:
        """The hardware that the model predicts for."""
        ...

    @property
    def most(self) -> int:
        """The largest number of topics on a broker that the model predicts for."""
        ...

    def p90_ms(self, sets: Sets) -> Floats:
        """(M,) the predicted p90 latency of every topic."""
        ...

    def interval_ms(self, sets: Sets, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """(M,) and (M,): limits between which the share ``coverage`` of measured p90s lies."""
        ...

    def as_json(self) -> dict[str, Any]:
        """All that ``from_json`` needs to make the same model."""
        ...


@runtime_checkable
class Structured(Protocol):
    """A model that knows how busy every topic's worker is, so that a margin can be put on that instead of on latency.

    Near the point where a worker is always busy, 2 % more load takes the latency from 200 ms to 2 s. A margin on
    latency does not protect from that.
    """

    def use(self, sets: Sets) -> Floats:
        """(M,) share of the time in which the topic's worker is busy; above 1 its queue grows without end."""
        ...

    def most_use(self, bound_ms: float) -> float:
        """The use of a worker above which the model predicts a p90 above the bound; inf if it does not promise one."""
        ...

    def on(self, hardware: Hardware) -> Structured:
        """The same model for other hardware of the kind, such as more cores."""
        ...
