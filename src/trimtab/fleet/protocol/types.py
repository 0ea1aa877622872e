"""The types of columns and parameters, and the canonical form of a value of each type."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = str | bool | int | float  # a value in JSON; dates and timestamps are text

TYPES: Final = {  # type -> Spark's name of it
    "string": "STRING",
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
MAX_TEXT: Final = 1_000

_RULES: Final = {
    "string": f"text of {MAX_TEXT:,} characters at most, without lone surrogates",
    "boolean": "true or false",
    "int": f"a whole number, without a decimal point, from {-(2**31):,} to {2**31 - 1:,}",
    "long": f"a whole number, without a decimal point, from {-(2**63):,} to {2**63 - 1:,}",
    "double": "a finite number",
    "date": "a date such as 2026-03-31",
    "timestamp": "a time with its zone, such as 2026-03-31T12:00:00Z or 2026-03-31T14:00:00+02:00",
}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    rf"{_DATE.pattern}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]{{1,9}})?)?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)"
)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")  # Python refuses to read thousands of digits; no type here needs them
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


def ddl_name(kind: str) -> str:
    """Spark's name of the type."""
    if kind not in TYPES:
        raise UnknownName("type", kind, TYPES)
    return TYPES[kind]


def schema_ddl(columns: Mapping[str, str]) -> str:
    """The columns as a schema in Spark's DDL: ```id` STRING, `at` TIMESTAMP``."""
    return ", ".join(f"`{name.replace('`', '``')}` {ddl_name(kind)}" for name, kind in columns.items())


def check_value(kind: str, value: object, where: str) -> Value:
    """The canonical form of a value. An error message begins with ``where``, which names the place of the value."""
    ddl_name(kind)
    kept = _CHECKS[kind](value)
    if kept is None:
        raise BadInput(f"{where} must be {_RULES[kind]}, but this came: {shown(value)}")
    return kept


def parse_text(kind: str, text: str, where: str = "the value") -> Value:
    """The value of a text that was typed at a command line."""
    ddl_name(kind)
    read: object = text
    if kind == "boolean":
        read = {"true": True, "false": False}.get(text)
    elif kind in ("int", "long"):
        read = int(text) if _WHOLE.fullmatch(text) else None
    elif kind == "double":
        read = float(text) if _NUMBER.fullmatch(text) else None
    kept = None if read is None else _CHECKS[kind](read)
    if kept is None:
        raise BadInput(f"{where} must be {_RULES[kind]}, but this came: {shown(text)}")
    return kept


def canonical(params: Mapping[str, Value]) -> str:
    """The JSON of checked values; equal values give the same text."""
    return json.dumps(dict(params), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def subscription_id(channel: str, params: Mapping[str, Value]) -> str:
    """The id of a subscription, 32 hexadecimal digits: the same for all clients with these parameter values.

    Numbers of equal value are equal: clients in other languages write 1.0 as 1, and do not distinguish 0.0 from -0.0.
    """
    values = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in params.items()
    }
    return blake2b(f"{channel}\n{canonical(values)}".encode(), digest_size=16).hexdigest()


def shown(value: object) -> str:
    """A value as text for an error message: short, on one line, without raising an error itself."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else f"{value[:77]!r}... ({len(value):,} characters)"
    if isinstance(value, int) and value.bit_length() > 256:  # Python does not print thousands of digits
        return f"a whole number of {value.bit_length():,} bits"
    if value is None or isinstance(value, (bool, int, float, date)):
        return str(value)
    return f"a {type(value).__name__}"


def is_text(value: str) -> bool:
    """Whether the text can be written as UTF-8, which excludes half a surrogate pair."""
    return not _SURROGATE.search(value)


# One function for each type: the canonical form of the value, or None if it is not of the type.


def _string(value: object) -> str | None:
    if isinstance(value, str) and len(value) <= MAX_TEXT and is_text(value):
        return str.__str__(value)  # the text of a text enumeration, not its name
    return None


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(bits: int) -> Callable[[object], int | None]:
    most = 2 ** (bits - 1)

    def check(value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and -most <= value < most:
            return int(value)
        return None

    return check


def _double(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None  # -0.0 becomes 0.0


def _date(value: object) -> str | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        return None


def _timestamp(value: object) -> str | None:
    try:
        if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
            value = datetime.fromisoformat(value)
        if not isinstance(value, datetime):
            return None
        if value.utcoffset() is None:
            value = value.replace(tzinfo=UTC)
        moment = value.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # no such day, or before the year 1 once in UTC
        return None
    return f"{moment.isoformat(timespec='microseconds')}Z"


_CHECKS: Final[dict[str, Callable[[object], Value | None]]] = {
    "string": _string,
    "boolean": _boolean,
    "int": _whole(32),
    "long": _whole(64),
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
}


def as_json(params: Mapping[str, object]) -> dict[str, object]:
    """Python's dates and times as text, so that JSON can carry them. The hub checks all other values."""
    return {name: value.isoformat() if isinstance(value, (date, datetime)) else value for name, value in params.items()}
