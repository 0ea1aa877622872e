"""Positions of clients and brokers, and distances between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import MissingColumn

if TYPE_CHECKING:
    from trimtab.model.workload import Brokers, Clients, Floats

EARTH_KM: Final = 6371.0088  # mean radius
AT_ONCE: Final = 1 << 22  # most distances held in memory at a time
WHY: Final = "how far clients and brokers are apart; lat and lon, x_km and y_km, or coordinate, in both tables"


def points(clients: Clients, brokers: Brokers) -> tuple[Floats, Floats]:
    """Clients and brokers as points of one space: the plane in km, or the unit sphere."""
    for names in (("x_km", "y_km"), ("lat", "lon")):
        columns = [[getattr(table, name) for name in names] for table in (clients, brokers)]
        if all(values is not None for table in columns for values in table):
            flat = names[0] == "x_km"
            client, broker = (np.stack(table, axis=1) if flat else on_sphere(*table) for table in columns)
            return client, broker
    names = ("x_km", "y_km") if any(table.x_km is not None for table in (clients, brokers)) else ("lat", "lon")
    table, name = next((table, name) for table in (clients, brokers) for name in names if getattr(table, name) is None)
    raise MissingColumn(table.name, name, table.present(), WHY)


def on_sphere(lat: Floats, lon: Floats) -> Floats:
    """Points of the unit sphere, from degrees."""
    up, around = np.radians(lat), np.radians(lon)
    return np.stack([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)], axis=1)


def km_between(one: Floats, other: Floats) -> Floats:
    """(len(one), len(other)) distances: straight lines in the plane, great circles on the sphere."""
    square = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    straight: Floats = np.sqrt(square)
    if one.shape[1] == 2:
        return straight
    return 2.0 * EARTH_KM * np.arcsin(np.minimum(straight / 2.0, 1.0))
