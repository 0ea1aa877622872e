"""Cases by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.lab.stability.case import Case

CASES: Final[dict[str, Callable[[int], Case]]] = {}


def case(about: str) -> Callable[[Callable[[np.random.Generator, str, str], Case]], Callable[[int], Case]]:
    """Register a case by the name of its function; it draws from its own seed."""

    def registered(make: Callable[[np.random.Generator, str, str], Case]) -> Callable[[int], Case]:
        name = make.__name__.strip("_").replace("_", "-")

        def made(seed: int) -> Case:
            return make(np.random.default_rng((seed, len(name), ord(name[0]))), name, about)

        CASES[name] = made
        return made

    return registered
