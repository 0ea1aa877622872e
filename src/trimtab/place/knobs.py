"""Knobs of policies: how a policy declares them, how text and configuration values become them.

A knob is a field of a policy's dataclass that is declared with ``knob(default, about, ...)``. The declaration is the
only place for its documentation and its range; ``check`` in ``__post_init__`` enforces the range. A field without such
a declaration (``stop``) is set by code only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, cast

from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.place.registry import POLICIES, policy_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Value = bool | int | float | str | None

TYPES: Final[dict[type, str]] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
NONE: Final = "none"  # how the absence of a value is written on the command line and in trimtab.toml


def knob(
    default: Value, about: str, *, kind: type | None = None, least: float | None = None, most: float | None = None,
    choices: Iterable[str] = (),
) -> Any:  # fmt: skip
    """Declare a knob. Its type is that of ``default``; if that is None, the value is optional and ``kind`` its type."""
    declared = {
        "kind": kind or type(default), "about": about, "least": least, "most": most, "choices": tuple(choices),
    }  # fmt: skip
    return field(default=default, metadata={"knob": declared})


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob of a policy."""

    name: str
    default: Value
    kind: type  # bool, int, float or str
    about: str  # one line of documentation
    least: float | None = None  # inclusive; only for numbers, which must also be finite
    most: float | None = None  # inclusive
    choices: tuple[str, ...] = ()  # only for text; empty: any text

    @property
    def optional(self) -> bool:
        return self.default is None

    @property
    def range(self) -> str:
        """The allowed values in words; empty if there is no limit beyond the type."""
        if self.choices:
            limits = f"one of {', '.join(self.choices)}"
        elif self.least is not None and self.most is not None:
            limits = f"from {self.least:,.12g} to {self.most:,.12g}"
        elif self.least is not None:
            limits = f"{self.least:,.12g} or more"
        elif self.most is not None:
            limits = f"at most {self.most:,.12g}"
        else:
            limits = ""
        return ", or ".join(part for part in (limits, NONE if self.optional else "") if part)

    def checked(self, owner: str, value: object) -> Value:
        """``value`` in the type of the knob. ``owner`` is the policy, for the message of ``BadKnob``."""
        if self.optional and value is None:
            return None
        number: Value
        if self.kind is bool and isinstance(value, bool):
            return value
        elif self.kind is str and isinstance(value, str):
            if not self.choices or value in self.choices:
                return value
        elif self.kind is int and isinstance(value, Integral) and not isinstance(value, bool):
            number = int(value)
            if self._in_range(number):
                return number
        elif self.kind is float and isinstance(value, Real) and not isinstance(value, bool):
            number = _as_float(value)
            if not math.isfinite(number):
                raise BadKnob(owner, self.name, value, self._rule.replace("a number", "a finite number", 1))
            if self._in_range(number):
                return number
        raise BadKnob(owner, self.name, value, self._rule)

    def read(self, owner: str, text: str) -> Value:
        """The value that ``text`` stands for, as ``shown`` writes it."""
        if self.optional and text == NONE:
            return None
        if self.kind is str:
            return self.checked(owner, text)
        if self.kind is bool:
            return self.checked(owner, {"true": True, "false": False}.get(text, text))
        try:
            number = self.kind(text)
        except ValueError:
            raise BadKnob(owner, self.name, text, self._rule) from None
        return self.checked(owner, number)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "type": TYPES[self.kind], "default": self.default, "optional": self.optional,
            "least": self.least, "most": self.most, "choices": list(self.choices), "about": self.about,
        }  # fmt: skip

    @property
    def _rule(self) -> str:
        if self.choices or self.kind is bool:
            return self.range or TYPES[self.kind]
        kind = TYPES[self.kind] if self.kind is str else f"a {TYPES[self.kind]}"
        between = " " if self.range.startswith("from") else ", "
        return f"{kind}{between}{self.range}" if self.range else kind

    def _in_range(self, number: float) -> bool:
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)


def knobs(policy: str) -> tuple[Knob, ...]:
    """The knobs of the policy ``family/name``, in the order they are declared."""
    return _of(policy_class(policy))


def find_knob(policy: str, name: str) -> Knob:
    own = {knob.name: knob for knob in knobs(policy)}
    if name not in own:
        raise UnknownName(f"knob of {policy}", name, own)
    return own[name]


def parse(policy: str, assignments: Iterable[str]) -> dict[str, Value]:
    """Knobs of a policy from texts such as ``alpha=0.05``."""
    values: dict[str, Value] = {}
    for assignment in assignments:
        name, text = split(assignment)
        own_knob = find_knob(policy, name)
        if name in values:
            raise BadInput(f"knob {name} of {policy} is set twice; set it once")
        values[name] = own_knob.read(policy, text)
    return values


def split(assignment: str) -> tuple[str, str]:
    """Name and text of ``KNOB=VALUE``."""
    name, equals, text = (part.strip() for part in assignment.partition("="))
    if not (name and equals and text):
        raise BadInput(f"'{assignment}' must have the form KNOB=VALUE, for example alpha=0.05")
    return name, text


def typed(policy: str, values: Mapping[str, object]) -> dict[str, Value]:
    """Knobs of a policy from typed values, such as those of a TOML table; "none" is the absence of a value."""
    own = {name: find_knob(policy, name) for name in values}
    return {
        name: own[name].checked(policy, None if own[name].optional and value == NONE else value)
        for name, value in values.items()
    }


def shown(value: Value) -> str:
    """A value as ``parse`` reads it."""
    if value is None:
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(policy: object) -> None:
    """Refuse a policy whose knobs are of the wrong type or out of range; for ``__post_init__``."""
    kind: type[Any] = type(policy)
    path = f"{kind.__module__}:{kind.__qualname__}"
    owner = next((name for name, target in POLICIES.items() if target == path), kind.__qualname__)
    for own in _of(kind):
        own.checked(owner, getattr(policy, own.name))


def _of(kind: type[Any]) -> tuple[Knob, ...]:
    declared = [spec for spec in fields(kind) if "knob" in spec.metadata]
    return tuple(Knob(spec.name, cast("Value", spec.default), **spec.metadata["knob"]) for spec in declared)


def _as_float(number: Real) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
