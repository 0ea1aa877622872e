"""Real numbers as values of options."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range, and finite unless ``infinite``. A range of click contains NaN, whatever its limits are."""

    name = "number"

    def __init__(
        self, min: float | None = None, max: float | None = None, *, min_open: bool = False, infinite: bool = False
    ) -> None:
        super().__init__(min, max, min_open=min_open)
        self.infinite = infinite

    def _describe_range(self) -> str:
        """The range as help shows it; click writes ``x<=None`` for a number without limits."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number) or (math.isinf(number) and not self.infinite):
            self.fail(f"{number} is not a number." if math.isnan(number) else f"{number} is not finite.", param, ctx)
        return number


class Numbers(click.ParamType[Any]):
    """Numbers separated by commas, each in the same range."""

    name = "numbers"

    def __init__(self, each: Number) -> None:
        self.each = each

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.each.convert(part.strip(), param, ctx) for part in str(value).split(","))
