"""Stored models: a folder with ``model.json``, ``card.json`` and the same card for people, ``card.md``.

Nothing in it is executed when it is read. A folder is written beside its place and renamed at the end. The fitted model
and the hardware profile of ``trimtab profile`` are read too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, UnknownName
from trimtab.model.hardware import Hardware
from trimtab.model.hardware import hardware as named
from trimtab.model.replacement import replacing
from trimtab.predict.queueing import Queueing
from trimtab.predict.registry import MODELS

if TYPE_CHECKING:
    from os import PathLike

    from trimtab.predict.card import Card
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.registry import Model

VERSION: Final = 1  # of the files
MODEL: Final = "model.json"
CARD: Final = "card.json"
PAGE: Final = "card.md"
PROFILE: Final = "profile.json"  # of trimtab profile
_WAY_OUT: Final = "trimtab profile and trimtab train write one"
_DAMAGE: Final = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError)  # of a file's values


def write_model(model: LatencyModel, card: Card, folder: Path) -> None:
    """A model that the folder holds already is replaced; a folder with any other file is refused."""
    content = {
        "version": VERSION, "predictor": model.name, "hardware": model.hardware.name, "most": model.most,
        "model": model.as_json(),
    }  # fmt: skip
    with replacing(folder, refuse_other_files) as fresh:
        fresh.mkdir(parents=True)
        (fresh / MODEL).write_text(json.dumps(content, allow_nan=False) + "\n")
        (fresh / CARD).write_text(json.dumps(card.as_json(), indent=2) + "\n")
        (fresh / PAGE).write_text(card.markdown())


def refuse_other_files(folder: Path) -> None:
    """Refuse a folder that holds anything but a trained model, since it would be replaced."""
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {MODEL, CARD, PAGE}):
        raise BadInput(f"{folder} exists and is no folder of a model; choose another one")


def read_model(
    path: str | PathLike[str], *, hardware: str | None = None, topics: int | None = None
) -> Model | Queueing:  # fmt: skip
    """The model of a folder of ``trimtab train`` or ``trimtab profile``, or of a file in one.

    A file with a hardware profile stands for the queueing model of that hardware. ``hardware`` and ``topics``: the name
    of the hardware, and the number of topics on a broker, that the model will be asked about.
    """
    file = _file(Path(path))
    content = _read(file)
    try:
        model = _model(content, file)
    except BadInput as error:
        raise BadInput(str(error) if str(file.parent) in str(error) else f"{file}: {error}") from None
    except _DAMAGE as error:
        raise BadInput(f"{file} is damaged ({error}): {_again(content)}") from None
    if hardware is not None and model.hardware.name != hardware:
        raise BadInput(
            f"{path} holds a model for hardware '{model.hardware.name}', but the hardware is '{hardware}': measure 20 "
            "to 50 sets on it and adapt the model with trimtab train --samples ... --from ..."
        )
    if topics is not None and model.most < topics:
        raise BadInput(
            f"{path} holds a model for at most {model.most} topics on a broker, but {topics} were asked for: train one "
            f"with --k {topics}, or ask for {model.most} (--set k={model.most})"
        )
    return model


def read_hardware(text: str) -> Hardware:
    """The profile of that name, or of a file such as ``profile.json`` of ``trimtab profile``; or of its folder."""
    path = Path(text)
    if path.suffix != ".json" and not path.exists():
        try:
            return named(text)
        except UnknownName as error:
            raise BadInput(f"{error}; nor is '{text}' a file with a profile") from None
    path = path / PROFILE if path.is_dir() else path
    try:
        values = _parsed(path)
        inner = values.get("hardware", values)
        return read_model(path).hardware if "predictor" in values else Hardware.from_json(inner)
    except (OSError, *_DAMAGE) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path} is no hardware profile: {reason}") from None


def read_card(folder: Path) -> dict[str, Any]:
    return _read(folder / CARD)


def _file(path: Path) -> Path:
    """The file of the model that ``path`` names."""
    file = path / MODEL if path.is_dir() else path
    if file.exists():
        return file
    if not path.is_dir():
        raise BadInput(f"there is no {path} to predict latencies by: {_WAY_OUT}")
    inner = sorted(each.parent for each in path.glob(f"*/{MODEL}"))
    names = ", ".join(each.name for each in inner)
    hint = f"; it holds the models {names}: name one of them, such as {inner[-1]}" if inner else f": {_WAY_OUT}"
    raise BadInput(f"{path} is no folder of a model: it has no {MODEL}{hint}")


def _model(content: dict[str, Any], file: Path) -> Model | Queueing:
    if "predictor" not in content:
        if isinstance(content.get("hardware"), dict):
            return Queueing.from_json(content)
        if "service" in content:
            return Queueing(Hardware.from_json(content))
        if "version" not in content:
            raise BadInput(f"{file} is neither a latency model nor a hardware profile: {_WAY_OUT}")
    if content.get("version") != VERSION:
        raise BadInput(
            f"{file.parent} holds a model of version {content.get('version')}, but must be of version {VERSION}: "
            "train it again"
        )
    model = MODELS[str(content["predictor"])].from_json(content["model"])
    for name, found in (("hardware", model.hardware.name), ("most", model.most)):
        if content[name] != found:
            raise ValueError(f"{name} is {content[name]!r} outside of the model, and {found!r} in it")
    return model


def _again(content: dict[str, Any]) -> str:
    return "train the model again" if "predictor" in content else "fit it again with trimtab profile"


def _read(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path)
    except FileNotFoundError:
        raise BadInput(f"{path.parent} is no folder of a model: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path} cannot be read: {reason}") from None


def _parsed(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(), parse_constant=_no_constant)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _no_constant(text: str) -> float:
    raise ValueError(f"it contains {text}, which is no number that a model can have")
