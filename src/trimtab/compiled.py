"""The decorator that compiles kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile on the first call and keep the machine code beside the source for the next process.

    Numba notices only changes of the kernel's own file, so a kernel may call kernels of its own file only; a test
    checks this.
    """
    kernel: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return kernel
