"""Cases by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.lab.stability.case import Case

CASES: Final[dict[str, Callable[[int], Case]]] = {}


def case(about: str) -> Callable[[Callable[[np.random.Generator, str, str], Case]], Callable[[int], Case]]:
    """Register a case under the name of its function. The name is part of the case's random seed."""

    def register(make: Callable[[np.random.Generator, str, str], Case]) -> Callable[[int], Case]:
        name = make.__name__.strip("_").replace("_", "-")

        def create(seed: int) -> Case:
            return make(np.random.default_rng((seed, len(name), ord(name[0]))), name, about)

        CASES[name] = create
        return create

    return register
