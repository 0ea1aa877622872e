"""Every policy by ``family/name``, loaded when it is asked for: kernels are compiled lazily."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import UnknownName

if TYPE_CHECKING:
    from trimtab.model.placement import Bound, Unit
    from trimtab.model.problem import Problem
    from trimtab.place.policy import Policy


@dataclass(frozen=True, slots=True)
class Family:
    """Policies that answer one question."""

    unit: Unit
    question: str
    bound: str  # "module:function" that bounds the objective for policies that prove nothing themselves


FAMILIES: Final = {
    "link": Family("link", "most data received within every broker's bandwidth", "trimtab.place.link.bounds:quick"),
}

POLICIES: Final = {
    "link/gs": "trimtab.place.link.gs:Gs",
    "link/gs-strict": "trimtab.place.link.gs:GsStrict",
    "link/mkpbs": "trimtab.place.link.mkpbs:Mkpbs",
    "link/ilp": "trimtab.place.link.ilp:Ilp",
    "link/trim": "trimtab.place.link.trim:Trim",
}


def find_family(name: str) -> Family:
    if name not in FAMILIES:
        raise UnknownName("family", name, FAMILIES)
    return FAMILIES[name]


def policies(family: str | None = None) -> list[str]:
    """Names of all policies, or of one family's, in the order they should be read."""
    if family is None:
        return list(POLICIES)
    find_family(family)
    return [name for name in POLICIES if name.startswith(f"{family}/")]


def policy_class(name: str) -> type[Any]:
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    found: type[Any] = _load(POLICIES[name])
    return found


def policy(name: str, **knobs: Any) -> Policy:
    """The policy of that name, with its knobs set."""
    kind = policy_class(name)
    own = [f.name for f in fields(kind)]
    for knob in knobs:
        if knob not in own:
            raise UnknownName(f"knob of {name}", knob, own)
    made: Policy = kind(**knobs)
    return made


def policy_with(name: str, **offered: Any) -> Policy:
    """The policy with those of the knobs on offer that it has: for asking several policies alike."""
    own = {f.name for f in fields(policy_class(name))}
    return policy(name, **{knob: value for knob, value in offered.items() if knob in own})


def family_bound(family_name: str, problem: Problem) -> Bound:
    """A bound that is cheap to have and valid for every placement of the family."""
    bound: Bound = _load(find_family(family_name).bound)(problem)
    return bound


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
