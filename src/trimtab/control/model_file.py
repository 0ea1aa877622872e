"""Reads the latency model that ``[control] model`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab.errors import BadInput
from trimtab.predict import store
from trimtab.predict.queueing import Queueing
from trimtab.predict.trim import TrimModel

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.predict.model import LatencyModel


def read_model(path: Path) -> dict[str, Any]:
    """A fitted queueing model as JSON values. ``path``: a folder of ``trimtab profile``, of a trained model ``trim``
    (of which the controller uses the structure), a file with a model, or one with a hardware profile."""
    model = store.read_model(path)
    try:
        return structure_of(model).as_json()
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def structure_of(model: LatencyModel) -> Queueing:
    """The queueing model in a latency model: what the goals, ``rightsize`` and first placements predict with.

    They ask about any number of topics on a broker, and for brokers with other numbers of cores, which a queueing model
    answers; the correction that ``trim`` learned on top of it is for up to ``most`` topics.
    """
    if isinstance(model, Queueing):
        return model
    if isinstance(model, TrimModel):
        return model.structure
    raise BadInput(
        f"the controller needs a model that knows how busy processors are, such as '{TrimModel.name}'; "
        f"'{model.name}' does not"
    )
