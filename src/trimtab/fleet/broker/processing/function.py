"""Loads the function that a topic names as its processor, and encodes its results as bytes."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from trimtab.errors import BadInput
from trimtab.fleet.protocol.message import Message
from trimtab.fleet.protocol.processor import parse

Function = Callable[[Message, Sequence[Message]], object]


def load(spec: str) -> Function:
    """The function that ``spec`` names, with its keyword arguments bound; imports its module."""
    module_name, function_name, arguments = parse(spec)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as problem:  # a module may do anything while it is imported
        raise BadInput(f"processor '{spec}': module '{module_name}' cannot be imported: {described(problem)}") from None
    try:
        function = getattr(module, function_name)
    except AttributeError:
        names = [name for name in vars(module) if callable(vars(module)[name]) and not name.startswith("_")]
        close = difflib.get_close_matches(function_name, names, n=3)
        hint = f"; close to it: {', '.join(close)}" if close else ""
        where = getattr(module, "__file__", None) or "built into Python"
        raise BadInput(
            f"processor '{spec}': module '{module_name}' ({where}) has no function '{function_name}'{hint}"
        ) from None
    if not callable(function):
        raise BadInput(
            f"processor '{spec}': '{function_name}' in module '{module_name}' is a {type(function).__name__}, "
            "but a processor must be a function"
        )
    _check_call(spec, function, arguments)
    return functools.partial(function, **arguments) if arguments else function


def encode(result: object) -> bytes:
    """Encode a result: bytes as they are, text as UTF-8, other values as JSON; TypeError if that is not possible."""
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    if isinstance(result, str):
        return result.encode()
    try:
        return json.dumps(result, allow_nan=False).encode()
    except (TypeError, ValueError) as problem:
        kind = type(result).__name__
        raise TypeError(f"a result must be bytes, text or fit for JSON, but this is a {kind}: {problem}") from None


def described(problem: BaseException) -> str:
    """An exception as one readable line: its type, and its text if it has one."""
    try:
        text = str(problem)
    except Exception:  # an exception class of the user's may itself be broken
        text = ""
    shown = text if len(text) <= 500 else f"{text[:497]}..."
    return f"{type(problem).__name__}: {shown}" if shown else type(problem).__name__


def _check_call(spec: str, function: Callable[..., object], arguments: dict[str, Any]) -> None:
    """Refuse a function that would fail for every message."""
    if inspect.iscoroutinefunction(function):
        raise BadInput(f"processor '{spec}' is an async function, but a processor must be a plain one")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(None, (), **arguments)
    except TypeError as problem:
        call = ", ".join(["message", "spool", *(f"{name}={value!r}" for name, value in arguments.items())])
        raise BadInput(f"processor '{spec}' is called with ({call}), but takes {signature}: {problem}") from None
