"""Places in SQL: functions for channels, and the grid that finds near places without comparing all pairs.

Distances are great circles on a sphere of the Earth's mean radius. The distance is NULL if a place is not on Earth (a
latitude beyond 90, a longitude beyond 360, NaN).

The grid has a level for every power of two of degrees. At level ``l`` the Earth is divided into rows of ``2^l`` degrees
of latitude, and each row into cells that are about as wide as high. So poles and the antimeridian need no special
cases. A circle is stored in all cells that it touches, at the first level whose rows are at least as high as a given
number of its radii: with four radii it touches two cells on average, with one radius six. A place is looked up in the
one cell that contains it, at every level in use.
"""

from __future__ import annotations

from typing import Final

from trimtab.model.positions import EARTH_KM

LEVELS: Final = (-12, 9)  # from rows of 27 m to a row that covers the Earth

_ON_EARTH: Final = "abs(a) <= 90 AND abs(c) <= 90 AND abs(b) <= 360 AND abs(d) <= 360"
_HALVES: Final = "pow(sin(radians(c - a) / 2), 2) + cos(radians(a)) * cos(radians(c)) * pow(sin(radians(d - b) / 2), 2)"
PLACES: Final = {  # name -> arguments, type, expression
    "distance_km": (
        "a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE", "DOUBLE",
        f"CASE WHEN {_ON_EARTH} THEN {2 * EARTH_KM}D * asin(least(1D, sqrt({_HALVES}))) END",
    ),
    "bearing_deg": (
        "a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE", "DOUBLE",
        f"CASE WHEN {_ON_EARTH} THEN pmod(degrees(atan2(sin(radians(d - b)) * cos(radians(c)), "
        "cos(radians(a)) * sin(radians(c)) - sin(radians(a)) * cos(radians(c)) * cos(radians(d - b)))), 360D) END",
    ),
    "compass": (
        "degrees DOUBLE", "STRING",
        "CASE WHEN abs(degrees) < double('Infinity') THEN "
        "element_at(array('N', 'NE', 'E', 'SE', 'S', 'SW', 'W', 'NW'), "
        "CAST(floor(pmod(degrees, 360D) / 45 + 0.5D) % 8 AS INT) + 1) END",
    ),
}  # fmt: skip

_MIDDLE: Final = "least(90D, greatest(-90D, y * pow(2D, level) - 90 + pow(2D, level - 1)))"
GRID: Final = {
    # A radius as degrees of a great circle, rounded up rather than down. In Spark, NaN is greater than any number.
    "_circle_angle": (
        "km DOUBLE", "DOUBLE",
        f"CASE WHEN km >= 0 THEN degrees(least(km, 1e5D) / {EARTH_KM}D) * (1D + 1e-9D) + 1e-9D END",
    ),
    "_circle_level": (
        "angle DOUBLE, radii INT", "INT",
        f"CAST(greatest({LEVELS[0]}, least({LEVELS[1]}, ceil(log2(radii * angle)))) AS INT)",
    ),
    # The square of the chord from the centre to the edge, plus a margin larger than rounding errors.
    "_circle_chord": ("angle DOUBLE", "DOUBLE", "4 * pow(sin(radians(least(180D, angle)) / 2), 2) + 1e-14D"),
    # Extent of a circle to the east and west, in degrees: all around if it contains a pole.
    "_circle_reach": (
        "lat DOUBLE, angle DOUBLE", "DOUBLE",
        "CASE WHEN abs(lat) + angle >= 90 THEN 180D "
        "ELSE degrees(asin(least(1D, sin(radians(angle)) / cos(radians(lat))))) + 1e-9D END",
    ),
    "_place_row": ("lat DOUBLE, level INT", "BIGINT", "floor((lat + 90) / pow(2D, level))"),
    "_row_cells": (
        "y BIGINT, level INT", "BIGINT", f"greatest(1L, floor(360 * cos(radians({_MIDDLE})) / pow(2D, level)))"
    ),
    "_place_column": ("lon DOUBLE, n BIGINT", "BIGINT", "floor((lon + 180) / 360 * n)"),
}  # fmt: skip
