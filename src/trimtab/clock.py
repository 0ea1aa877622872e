"""Time limits that follow the wall clock."""

from __future__ import annotations

import time


class Deadline:
    """A ``Stop`` that ends ``seconds`` after its creation."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        return self._end - time.monotonic()

    def __repr__(self) -> str:
        return f"{self.seconds:g} s"
