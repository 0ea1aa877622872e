"""Options of the commands that predict or simulate latencies: the latency model, and the hardware of the brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.packed import packed
from trimtab.errors import BadInput
from trimtab.model.hardware import PAPER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trimtab.model.hardware import Hardware
    from trimtab.predict.model import LatencyModel

CONFIGURED: Final = "[control] model of trimtab.toml"
DEFAULT: Final = "the default"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The values of the options."""

    model: str | None
    profile: str | None

    def chosen(self, topics: int | None = None) -> Chosen:
        """The hardware of the brokers and the latency model. ``topics``: the most on a broker that will be asked about.

        ``--model`` and ``--profile`` come first, then ``[control] model``, then the hardware of Khare et al.
        """
        from trimtab.config import load
        from trimtab.predict.store import read_hardware, read_model

        configured = load().model
        path = self.model if self.model is not None else configured
        profile = None if self.profile is None else read_hardware(self.profile)
        if path is None or (self.model is None and profile is not None):
            where = DEFAULT if self.profile is None else f"--profile {self.profile}"
            return Chosen(profile or PAPER, None, where)
        where = f"--model {path}" if self.model is not None else CONFIGURED
        try:
            model = read_model(path, hardware=None if profile is None else profile.name, topics=topics)
        except BadInput as error:
            raise BadInput(f"{where}: {error}" if self.model is None else str(error)) from None
        return Chosen(profile or model.hardware, model, where)

    def chosen_for(self, knobs: Mapping[str, Mapping[str, Any]]) -> Chosen:
        """For these policies with their knobs, all of one family."""
        from trimtab.place.registry import policy_class

        if not next(iter(knobs), "").startswith("topic/"):
            self.refuse("policies of links and clients predict none")
            return Chosen(PAPER, None, DEFAULT)
        predicting = [name for name in knobs if "model" in policy_class(name).__slots__]
        most = [knobs[name].get("k", policy_class(name)().k) for name in predicting]
        chosen = self.chosen(max(most, default=None))
        return chosen if predicting else Chosen(chosen.hardware, None, chosen.where)

    def refuse(self, why: str) -> None:
        """Refuse the options where no latency is predicted."""
        for name in ("model", "profile"):
            if getattr(self, name) is not None:
                raise BadInput(f"--{name} is about the latencies of topics that share a broker; {why}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What latencies are predicted by and simulated on."""

    hardware: Hardware
    model: LatencyModel | None  # None: the queueing model of the hardware
    where: str  # the option or setting that names it

    @property
    def name(self) -> str:
        return "queueing" if self.model is None else self.model.name

    def as_json(self) -> dict[str, Any]:
        return {"hardware": self.hardware.name, "model": self.name, "model_from": self.where}

    def rows(self, *, planned: bool = True) -> list[tuple[str, str]]:
        """For a table of figures."""
        cores = f"{self.hardware.cores:g} core" + ("" if self.hardware.cores == 1 else "s")
        hardware = ("hardware", f"{self.hardware.name}, {cores} ({self.where})")
        return [hardware, ("latency model", self.name)] if planned else [hardware]

    @property
    def hint(self) -> str:
        """How to name the own machine; empty if one was named."""
        if self.where != DEFAULT:
            return ""
        return (f"latencies are those of the paper's machine, '{self.hardware.name}'; --model or --profile names yours "
                "(trimtab profile measures it)")  # fmt: skip


_model_option = click.option(
    "--model", type=click.Path(), metavar="DIR|FILE",
    help="Latency model of the brokers' hardware, of trimtab train or trimtab profile [default: [control] model of "
    "trimtab.toml, or else the hardware of Khare et al.].",
)  # fmt: skip
_profile_option = click.option(
    "--profile", metavar="NAME|FILE",
    help="Hardware of the brokers: a named profile, or a profile.json of trimtab profile.",
)  # fmt: skip


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as ``latency``."""
    return _model_option(_profile_option(packed("latency", ModelOptions)(command)))
