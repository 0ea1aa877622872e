"""How a topic names its processor.

MODULE:FUNCTION                    called as FUNCTION(message, spool)
MODULE:FUNCTION?ms=20&mode=fast    called as FUNCTION(message, spool, ms=20, mode="fast")
burn?ms=20                         the built-in that burns CPU time
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import parse_qsl

from trimtab.errors import BadInput

BUILT_IN: Final = {"burn": "trimtab.fleet.broker.processing.burn:burn"}
_FORM: Final = "MODULE:FUNCTION or MODULE:FUNCTION?NAME=VALUE&NAME=VALUE, or the built-in 'burn'"


def parse(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Module, function and keyword arguments of a processor; imports nothing."""
    name, _, query = spec.partition("?")
    module, colon, function = BUILT_IN.get(name, name).partition(":")
    if not colon:
        raise BadInput(f"processor '{spec}' has no colon: it is given as {_FORM}")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise BadInput(f"processor '{spec}' does not name a function of a module: it is given as {_FORM}")
    return module, function, _arguments(spec, query)


def _arguments(spec: str, query: str) -> dict[str, Any]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as problem:
        raise BadInput(f"processor '{spec}': arguments are given as NAME=VALUE&NAME=VALUE ({problem})") from None
    arguments: dict[str, Any] = {}
    for name, value in pairs:
        if not name.isidentifier():
            raise BadInput(f"processor '{spec}': an argument cannot be called '{name}': it is given as NAME=VALUE")
        if name in arguments:
            raise BadInput(f"processor '{spec}' gives argument '{name}' twice, but once is enough")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # NaN and Infinity, which Python's parser would take
