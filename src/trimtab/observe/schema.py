"""Arrow and Spark schemas derived from msgspec Structs such as reports, so that all forms agree."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from trimtab.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

_SPARK: Final = {str: "STRING", bool: "BOOLEAN", int: "LONG", float: "DOUBLE"}


def columns(declared: type[msgspec.Struct], only: Iterable[str] | None = None) -> dict[str, Any]:
    """Field -> Python type: of the named fields, or of all fields in declaration order."""
    hints = get_type_hints(declared)
    return {name: hints[name] for name in (declared.__struct_fields__ if only is None else only)}


def spark_ddl(declared: type[msgspec.Struct], only: Iterable[str] | None = None, as_text: Collection[str] = ()) -> str:
    """The struct's schema for Spark's ``from_json``; fields ``as_text`` are read as JSON texts."""
    return ", ".join(
        f"{name} {'STRING' if name in as_text else spark_type(kind)}" for name, kind in columns(declared, only).items()
    )


def spark_type(kind: Any) -> str:
    """``dict[str, int]`` is ``MAP<STRING, LONG>``."""
    kind = _plain(kind)
    if kind in _SPARK:
        return _SPARK[kind]
    if _is_array(kind):
        return _SPARK[str]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"STRUCT<{', '.join(f'{name}: {spark_type(item)}' for name, item in columns(kind).items())}>"
    inside = [spark_type(item) for item in get_args(kind)]
    return f"{'MAP' if get_origin(kind) is dict else 'ARRAY'}<{', '.join(inside)}>"


def arrow_schema(declared: type[msgspec.Struct], only: Iterable[str] | None = None) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, arrow_type(kind)) for name, kind in columns(declared, only).items()])


def arrow_type(kind: Any) -> pa.DataType:
    """``dict[str, int]`` is ``map<string, int64>``."""
    import pyarrow as pa

    kind = _plain(kind)
    simple = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if kind in simple:
        return simple[kind]
    if _is_array(kind):
        return simple[str]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return pa.struct([(name, arrow_type(item)) for name, item in columns(kind).items()])
    inside = [arrow_type(item) for item in get_args(kind)]
    return pa.map_(*inside) if get_origin(kind) is dict else pa.list_(*inside)


def _is_array(kind: Any) -> bool:
    """Whether a struct is written as an array without names of fields; such a value is read as its JSON text."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like


def _plain(kind: Any) -> Any:
    """The type without None, since every column is nullable; a histogram becomes its encoded type."""
    if kind is Histogram:
        return list[list[int]]
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (item for item in get_args(kind) if item is not NoneType)
        return _plain(kind)
    return kind
