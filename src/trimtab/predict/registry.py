"""The predictors of latency by name: each of them is fitted on samples and gives a model with the same interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from trimtab.errors import UnknownName
from trimtab.predict.mlp import Mlp, MlpModel
from trimtab.predict.poly4 import Poly4, Poly4Model
from trimtab.predict.trim import Trim, TrimModel

if TYPE_CHECKING:
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.samples import Samples
    from trimtab.predict.sets import Ints

Model = Poly4Model | MlpModel | TrimModel


class Predictor(Protocol):
    """Knobs are fields; it keeps no state."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def refuse_too_few(self, sizes: Ints) -> None:
        """Raises ``BadInput`` with too few sets to be fitted on; ``sizes``: (S,) topics of each set."""
        ...

    def fit(self, samples: Samples, *, seed: int = 0) -> LatencyModel:
        """A model of the hardware of the samples, with intervals calibrated on samples that it was not fitted on.

        Raises ``BadInput`` with too few samples. The same samples and seed give the same model.
        """
        ...


PREDICTORS: Final[dict[str, type[Poly4] | type[Mlp] | type[Trim]]] = {each.name: each for each in (Poly4, Mlp, Trim)}
MODELS: Final[dict[str, type[Poly4Model] | type[MlpModel] | type[TrimModel]]] = {
    each.name: each for each in (Poly4Model, MlpModel, TrimModel)
}


def predictor(name: str) -> Predictor:
    """The predictor with its default knobs."""
    if name not in PREDICTORS:
        raise UnknownName("predictor", name, PREDICTORS)
    return PREDICTORS[name]()
