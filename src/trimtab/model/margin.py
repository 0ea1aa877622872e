"""The improvement of a latency that is worth a move. Without numpy, since agents need it too."""

from __future__ import annotations

from typing import Final

MARGIN: Final = 0.05  # as a share of the present latency
MARGIN_MS: Final = 2.0  # at least
