"""Every policy by ``family/name``, imported on first use, so that kernels are compiled lazily."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import UnknownName

if TYPE_CHECKING:
    from trimtab.model.placement import Bound, Unit
    from trimtab.model.problem import Problem
    from trimtab.place.policy import Policy


@dataclass(frozen=True, slots=True)
class Family:
    """Policies that place the same unit."""

    unit: Unit
    question: str
    bounds: dict[str, str]  # objective -> "module:function" of its bound, for policies that prove no bound themselves

    @property
    def objective(self) -> str:
        """The default objective."""
        return next(iter(self.bounds))


FAMILIES: Final = {
    "link": Family(
        "link", "most data received within every broker's bandwidth", {"received": "trimtab.place.link.bounds:quick"}
    ),
    "client": Family(
        "client",
        "least maximum load with few moves, or least delay",
        {
            "load": "trimtab.place.client.bounds:least_load",
            "delay": "trimtab.place.client.bounds:least_delay",
            "both": "trimtab.place.client.bounds:least_delay",
        },
    ),
    "topic": Family(
        "topic",
        "fewest brokers with every topic inside its latency bound, or every topic near its clients",
        {"brokers": "trimtab.place.topic.bounds:quick"},
    ),
}

POLICIES: Final = {
    "link/gs": "trimtab.place.link.gs:Gs",
    "link/gs-strict": "trimtab.place.link.gs:GsStrict",
    "link/mkpbs": "trimtab.place.link.mkpbs:Mkpbs",
    "link/ilp": "trimtab.place.link.ilp:Ilp",
    "link/trim": "trimtab.place.link.trim:Trim",
    "client/random": "trimtab.place.client.simple:Random",
    "client/round-robin": "trimtab.place.client.simple:RoundRobin",
    "client/nearest": "trimtab.place.client.simple:Nearest",
    "client/otos": "trimtab.place.client.otos:Otos",
    "client/otos-centroid": "trimtab.place.client.otos:OtosCentroid",
    "client/reloc": "trimtab.place.client.reloc:Reloc",
    "client/ldm": "trimtab.place.client.bad:Ldm",
    "client/sdm": "trimtab.place.client.bad:Sdm",
    "client/gsh": "trimtab.place.client.bad:Gsh",
    "client/multistage": "trimtab.place.client.bad:Multistage",
    "client/trim": "trimtab.place.client.trim:Trim",
    "topic/hash": "trimtab.place.topic.hashed:Hash",
    "topic/ffd": "trimtab.place.topic.ffd:Ffd",
    "topic/lfs": "trimtab.place.topic.lfs:Lfs",
    "topic/lfs-ffd": "trimtab.place.topic.lfs:LfsFfd",
    "topic/ilp": "trimtab.place.topic.ilp:Ilp",
    "topic/centroid": "trimtab.place.topic.centroid:Centroid",
    "topic/all-pairs": "trimtab.place.topic.all_pairs:AllPairs",
    "topic/trim": "trimtab.place.topic.trim:Trim",
}


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise UnknownName("family", name, FAMILIES)
    return FAMILIES[name]


def policies(family: str | None = None) -> list[str]:
    """Names of all policies, or of one family's, in the order of presentation."""
    if family is None:
        return list(POLICIES)
    find_family(family)
    return [name for name in POLICIES if name.startswith(f"{family}/")]


def full_name(name: str, family: str) -> str:
    """``family/name`` of a policy whose family may be left out."""
    return name if "/" in name else f"{family}/{name}"


def policy_class(name: str) -> type[Any]:
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    kind: type[Any] = _load(POLICIES[name])
    return kind


def about(name: str) -> tuple[str, str]:
    """A policy's description in one line, and its details, which may be empty."""
    text = inspect.cleandoc(policy_class(name).__doc__ or "").replace("``", "`")
    line, _, details = text.partition("\n")
    return line, details.strip()


def policy(name: str, **knobs: Any) -> Policy:
    """The policy of that name, with its knobs set."""
    kind = policy_class(name)
    own = [f.name for f in fields(kind)]
    for knob in knobs:
        if knob not in own:
            raise UnknownName(f"knob of {name}", knob, own)
    instance: Policy = kind(**knobs)
    return instance


def policy_with(name: str, **offered: Any) -> Policy:
    """The policy with those of the ``offered`` knobs that it has, so that several policies can share a set of knobs."""
    own = {f.name for f in fields(policy_class(name))}
    return policy(name, **{knob: value for knob, value in offered.items() if knob in own})


def family_bound(family_name: str, problem: Problem, objective: str | None = None) -> Bound:
    """A bound that is cheap to compute and valid for every placement of the family."""
    family = find_family(family_name)
    wanted = objective or family.objective
    if wanted not in family.bounds:
        raise UnknownName(f"objective of {family_name}", wanted, family.bounds)
    bound: Bound = _load(family.bounds[wanted])(problem)
    return bound


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
