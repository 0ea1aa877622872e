"""What source text says of itself: what it imports, how long it is, how many parameters its functions have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def imports(source: str, module: str = "") -> set[str]:
    """Everything that is imported anywhere in it: at the top, in functions, for types only, by name at run time.

    Of ``from a.b import c`` both ``a.b`` and ``a.b.c``, for c may be a module. ``module`` is the source's own dotted
    name, which relative imports start from.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=base, names=names, level=level):
                start = ".".join([*module.split(".")[:-level], *([base] if base else [])]) if level else base or ""
                found |= {start} | {f"{start}.{alias.name}" for alias in names}
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if _imports(function):
                found.add(name)
    return found


def _imports(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def within(name: str, modules: Iterable[str]) -> bool:
    """Whether a dotted name is one of these modules or a part of one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def parameters(source: str) -> Iterator[tuple[str, int]]:
    """Functions with the number of their parameters, without those compiled and without self and cls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_compiled(node):
            named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield node.name, sum(each.arg not in ("self", "cls") for each in named)


def is_compiled(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return any(getattr(each, "id", "") == "compiled" for each in calls)
