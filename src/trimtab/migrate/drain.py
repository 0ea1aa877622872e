"""Targets for the units that must leave a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.model.key import Key

    U = TypeVar("U", str, Key)


def spread(units: Iterable[U], carried: Mapping[str, int], leaving: str) -> dict[U, str]:
    """Assign each of ``units`` in turn to the broker with the fewest units; ``carried`` counts units by broker.

    Before a load has been measured, only counts are known. A controller chooses better, by load.
    """
    count = {broker: units for broker, units in sorted(carried.items()) if broker != leaving}
    if not count:
        raise BadInput(f"{leaving} is the last broker: there is nowhere to move what it serves; add a broker first")
    target: dict[U, str] = {}
    for unit in sorted(units):
        emptiest = min(count, key=count.__getitem__)
        target[unit] = emptiest
        count[emptiest] += 1
    return target
