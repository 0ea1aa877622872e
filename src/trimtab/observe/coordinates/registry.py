"""The models of coordinates by name: nodes of each of them have the same interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.errors import UnknownName
from trimtab.observe.coordinates.robust import Robust
from trimtab.observe.coordinates.serf import Serf

if TYPE_CHECKING:
    from trimtab.observe.coordinates.node import CoordinateModel

MODELS: Final[dict[str, type[Serf] | type[Robust]]] = {each.name: each for each in (Serf, Robust)}


def coordinate_model(name: str) -> CoordinateModel:
    """The model with its default knobs."""
    if name not in MODELS:
        raise UnknownName("coordinate model", name, MODELS)
    return MODELS[name]()
