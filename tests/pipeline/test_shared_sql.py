"""Every subscription gets what its query would give it alone: Spark's answers against functions over lists."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, reduce
from types import SimpleNamespace as Row
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.pipeline.sql import functions, index, query, share
from trimtab.pipeline.sql.share import RANK, SUB, SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

TABLES = {
    "reports": {
        "n": "long", "kind": "string", "sev": "int", "size": "long", "value": "double", "day": "date",
        "at": "timestamp", "lat": "double", "lon": "double",
    },
    "users": {"user": "string", "town": "string", "low": "int", "high": "int", "lat": "double", "lon": "double"},
    "shelters": {"id": "long", "town": "string", "kind": "string", "beds": "int"},
}  # fmt: skip
PARAMETERS = {
    "kind": "string", "user": "string", "sev": "int", "k": "int", "n": "long", "town": "string",
    "low_int": "int", "high_int": "int", "low_long": "long", "high_long": "long",
    "low_double": "double", "high_double": "double", "low_date": "date", "high_date": "date",
    "low_timestamp": "timestamp", "high_timestamp": "timestamp",
    "lat": "double", "lon": "double", "km": "double", "south": "double", "west": "double", "north": "double",
    "east": "double",
}  # fmt: skip
ARROW = {
    "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
EARTH_KM = 6371.0088


# How SQL compares: nothing with NULL, and NaN is equal to itself and more than everything else.


def order(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def same(a: Any, b: Any) -> bool:
    return a is not None and b is not None and order(a) == order(b)


def below(a: Any, b: Any) -> bool:
    return a is not None and b is not None and order(a) < order(b)


def upto(a: Any, b: Any) -> bool:
    return below(a, b) or same(a, b)


def between(low: Any, value: Any, high: Any) -> bool:
    return upto(low, value) and upto(value, high)


def nulls_first(value: Any) -> Any:
    return (value is not None, 0 if value is None else order(value))


def utf8(text: str | None) -> bytes | None:
    """Spark compares texts by their bytes."""
    return None if text is None else text.encode()


# Distances by vectors, which neither the grid nor SQL's formula use.


def distance(lat: float | None, lon: float | None, lat2: float | None, lon2: float | None) -> float | None:
    if None in (lat, lon, lat2, lon2) or not all((abs(lat) <= 90, abs(lat2) <= 90, abs(lon) <= 360, abs(lon2) <= 360)):
        return None
    (x, y, z), (u, v, w) = vector(lat, lon), vector(lat2, lon2)
    across = math.hypot(y * w - z * v, z * u - x * w, x * v - y * u)
    return EARTH_KM * math.atan2(across, x * u + y * v + z * w)


def vector(lat: float, lon: float) -> tuple[float, float, float]:
    a, b = math.radians(lat), math.radians(lon)
    return math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a)


@dataclass(frozen=True)
class Either:
    """A row on the edge of a circle, which may be in the answer or not."""

    row: tuple


def near(row: tuple, there: tuple, here: tuple, km: float | None, *, open_: bool = False) -> list:
    """The row if it is within the circle; of what is on its edge nobody can tell."""
    far = distance(*there, *here)
    if far is None or km is None:
        return []
    slack = 1e-9 * abs(km) + 1e-9 if abs(km) < 20_000 else 1e-3  # near the antipodes half of the digits are lost
    if there != here and abs(far - km) <= slack:
        return [Either(row)]
    return [row] if (below(far, km) if open_ else upto(far, km)) else []


# Channels: a query, and what it means.


@dataclass(frozen=True)
class Channel:
    sql: str
    oracle: Callable[[Row, Row], list]
    indexes: tuple[str, ...]  # their kinds
    ordered: int  # columns that the answer is ordered by


FAMILIES: dict[str, list[Channel]] = {}


def channel(family: str, sql: str, *indexes: str, ordered: int = 0):
    def register(oracle):
        FAMILIES.setdefault(family, []).append(Channel(sql, oracle, indexes, ordered))
        return oracle

    return register


def used(sql: str) -> dict[str, str]:
    named = set(re.findall(r":(\w+)", sql))
    return {name: kind for name, kind in PARAMETERS.items() if name in named}


@cache
def compiled(sql: str):
    checked = query.read(sql, TABLES, used(sql))
    shared = share.share(checked)
    return checked, share.text(shared), index.use_indexes(shared, TABLES, used(sql))


# Equality.


@channel("plain", "SELECT r.n, r.value FROM reports r WHERE r.kind = :kind")
def equality(w, p):
    return [(r.n, r.value) for r in w.reports if same(r.kind, p.kind)]


@channel("plain", "SELECT n FROM reports")
def no_parameters(w, p):
    return [(r.n,) for r in w.reports]


@channel("plain", "SELECT r.n, :sev AS mine, :kind AS kind, r.n - :sev AS more FROM reports r WHERE r.kind = :kind")
def parameters_among_the_columns(w, p):
    return [
        (r.n, p.sev, p.kind, None if p.sev is None else r.n - p.sev)
        for r in w.reports
        if same(r.kind, p.kind)
    ]  # fmt: skip


@channel(
    "plain", "SELECT n, CASE WHEN sev > :sev THEN 'hi' WHEN kind = :kind THEN 'same' ELSE 'it''s' END AS t FROM reports"
)
def case(w, p):
    return [(r.n, "hi" if below(p.sev, r.sev) else "same" if same(r.kind, p.kind) else "it's") for r in w.reports]


@channel("plain", "SELECT r.n, r.value AS value FROM reports r WHERE r.value = :low_double")
def equality_of_doubles(w, p):
    return [(r.n, r.value) for r in w.reports if same(r.value, p.low_double)]


@channel("plain", "SELECT DISTINCT kind, sev FROM reports WHERE sev >= :sev")
def distinct(w, p):
    return list({(r.kind, r.sev) for r in w.reports if upto(p.sev, r.sev)})


@channel("plain", "SELECT n FROM reports WHERE kind IN (:kind, :town) OR kind IS NULL AND sev <=> :sev")
def in_a_list_of_parameters(w, p):
    return [
        (r.n,) for r in w.reports if same(r.kind, p.kind) or same(r.kind, p.town) or (r.kind is None and r.sev == p.sev)
    ]


@channel(
    "plain",
    "SELECT n AS `order`, sev AS `my sev`, n % 2 AS Left, sev AS n, kind AS current_date FROM reports "
    "WHERE kind = :kind ORDER BY n DESC NULLS FIRST, `order` LIMIT :k",
    ordered=2,
)
def names_that_need_care(w, p):
    rows = sorted((r for r in w.reports if same(r.kind, p.kind)), key=lambda r: r.n)
    some = sorted((r for r in rows if r.sev is not None), key=lambda r: -r.sev)
    rows = [*(r for r in rows if r.sev is None), *some]
    return [(r.n, r.sev, r.n % 2, r.sev, r.kind) for r in rows][: max(0, p.k or 0)]


@channel(
    "plain",
    "SELECT concat(kind, '!') AS town, count(*) AS c FROM reports WHERE kind <> :town GROUP BY town HAVING c > 1",
)
def alias_with_the_name_of_a_parameter(w, p):
    found = groups([r for r in w.reports if None not in (r.kind, p.town) and r.kind != p.town], "kind")
    return [(f"{kind}!", len(rows)) for (kind,), rows in found.items() if len(rows) > 1]


# Joins.


@channel("joins", "SELECT r.n, s.id FROM reports r JOIN shelters s ON s.kind = r.kind AND s.beds >= :sev")
def join(w, p):
    return [(r.n, s.id) for r in w.reports for s in w.shelters if same(s.kind, r.kind) and upto(p.sev, s.beds)]


@channel(
    "joins", "SELECT r.n, town FROM reports r JOIN shelters s USING (kind) JOIN users USING (town) WHERE user = :user"
)
def join_using(w, p):
    return [
        (r.n, u.town)
        for r in w.reports
        for s in w.shelters
        for u in w.users
        if same(s.kind, r.kind) and same(s.town, u.town) and same(u.user, p.user)
    ]


@channel("joins", "SELECT r.n, s.id FROM reports r, users u, shelters s WHERE u.user = :user AND s.town = u.town")
def join_by_commas(w, p):
    return [
        (r.n, s.id)
        for r in w.reports
        for u in w.users
        for s in w.shelters
        if same(u.user, p.user) and same(s.town, u.town)
    ]


@channel(
    "joins",
    "SELECT s.id, r.n FROM shelters s LEFT JOIN reports r ON r.kind = s.kind AND r.sev >= :sev WHERE s.town = :town",
)
def left_join(w, p):
    answer = []
    for s in w.shelters:
        if same(s.town, p.town):
            found = [r.n for r in w.reports if same(r.kind, s.kind) and upto(p.sev, r.sev)]
            answer += [(s.id, n) for n in found or [None]]
    return answer


@channel(
    "joins",
    "SELECT r.n FROM reports r LEFT JOIN (SELECT kind FROM shelters WHERE town = :town) d ON d.kind = r.kind "
    "WHERE d.kind IS NULL",
)
def left_join_with_what_depends_on_parameters(w, p):
    there = [s.kind for s in w.shelters if same(s.town, p.town)]
    return [(r.n,) for r in w.reports if not any(same(kind, r.kind) for kind in there)]


@channel("joins", "SELECT r.n FROM reports r LEFT ANTI JOIN shelters s ON s.kind = r.kind AND s.beds > :sev")
def anti_join(w, p):
    return [(r.n,) for r in w.reports if not any(same(s.kind, r.kind) and below(p.sev, s.beds) for s in w.shelters)]


@channel(
    "joins",
    "SELECT r.n, l.m FROM reports r, LATERAL (SELECT max(s.id) AS m FROM shelters s WHERE s.kind = r.kind AND "
    "s.town = :town) l",
)
def lateral(w, p):
    def last(r):
        return max((s.id for s in w.shelters if same(s.kind, r.kind) and same(s.town, p.town)), default=None)

    return [(r.n, last(r)) for r in w.reports]


# Circles.

AROUND = "radius around (_s.lat, _s.lon)"


@channel("circles", "SELECT r.n FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) <= :km", AROUND)
@channel("forms of circles", "SELECT r.n FROM reports r WHERE :km >= distance_km(r.lat, r.lon, :lat, :lon)", AROUND)
@channel("forms of circles", "SELECT r.n FROM reports r WHERE distance_km(:lat, :lon, r.lat, r.lon) <= :km", AROUND)
@channel("forms of circles", "SELECT r.n FROM reports r WHERE within_km(r.lat, r.lon, :lat, :lon, :km)", AROUND)
@channel(
    "forms of circles",
    "SELECT `my r`.n FROM reports `my r` WHERE within_km(`my r`.lat, `my r`.lon, :lat, :lon, :km)",
    AROUND,
)
def circle(w, p):
    return [row for r in w.reports for row in near((r.n,), (r.lat, r.lon), (p.lat, p.lon), p.km)]


@channel("circles", "SELECT r.n FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < :km", AROUND)
@channel("forms of circles", "SELECT r.n FROM reports r WHERE (:km > distance_km(:lat, :lon, r.lat, r.lon))", AROUND)
def open_circle(w, p):
    return [row for r in w.reports for row in near((r.n,), (r.lat, r.lon), (p.lat, p.lon), p.km, open_=True)]


@channel("forms of circles", "SELECT r.n FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) <= 250", AROUND)
def constant_radius(w, p):
    return [row for r in w.reports for row in near((r.n,), (r.lat, r.lon), (p.lat, p.lon), 250.0)]


@channel(
    "circles",
    "SELECT r.n FROM reports r WHERE r.kind = :kind AND distance_km(r.lat, r.lon, :lat, :lon) <= :km",
    f"{AROUND} and r.kind = _s.kind",
)
def equality_and_circle(w, p):
    return [
        row
        for r in w.reports
        if same(r.kind, p.kind)
        for row in near((r.n,), (r.lat, r.lon), (p.lat, p.lon), p.km)
    ]  # fmt: skip


@channel(
    "circles",
    "SELECT r.n, u.town FROM reports r JOIN users u ON u.user = :user "
    "WHERE distance_km(r.lat, r.lon, u.lat, u.lon) <= :km",
    "radius around (u.lat, u.lon)",
)
@channel(
    "forms of circles",
    "SELECT r.n, u.town FROM users u, reports r "
    "WHERE distance_km(u.lat, u.lon, r.lat, r.lon) <= :km AND u.user = :user",
    "radius around (u.lat, u.lon)",
)
@channel(
    "forms of circles",
    "SELECT r.n, `my u`.town FROM (SELECT user AS who, town, lat, lon FROM users) `my u` JOIN reports r "
    "ON `my u`.who = :user AND within_km(r.lat, r.lon, `my u`.lat, `my u`.lon, :km)",
    "radius around (`my u`.lat, `my u`.lon)",
)
def circle_around_a_user(w, p):
    return [
        row
        for u in w.users
        if same(u.user, p.user)
        for r in w.reports
        for row in near((r.n, u.town), (r.lat, r.lon), (u.lat, u.lon), p.km)
    ]


@channel(
    "circles",
    "SELECT r.n, s.id FROM reports r JOIN users u ON u.user = :user LEFT JOIN shelters s ON s.town = u.town AND "
    "s.beds > :sev WHERE r.kind = :kind AND distance_km(r.lat, r.lon, u.lat, u.lon) <= :km AND "
    "EXISTS (SELECT 1 FROM users u WHERE u.town = r.kind OR u.low = r.sev)",
    "radius around (u.lat, u.lon) and r.kind = _s.kind",
)
def circle_around_a_user_with_others(w, p):
    answer = []
    for u in w.users:
        for r in w.reports:
            there = any(same(x.town, r.kind) or same(x.low, r.sev) for x in w.users)
            if same(u.user, p.user) and same(r.kind, p.kind) and there:
                beds = [s.id for s in w.shelters if same(s.town, u.town) and below(p.sev, s.beds)]
                for n in beds or [None]:
                    answer += near((r.n, n), (r.lat, r.lon), (u.lat, u.lon), p.km)
    return answer


# Ranges.


def ranges(type_: str, column: str) -> None:
    low, high = f"low_{type_}", f"high_{type_}"
    kind = f"range of r.{column}"

    def closed(w, p):
        return [(r.n,) for r in w.reports if between(getattr(p, low), getattr(r, column), getattr(p, high))]

    def half_open(w, p):
        return [
            (r.n,)
            for r in w.reports
            if same(r.kind, p.kind)
            and upto(getattr(p, low), getattr(r, column))
            and below(getattr(r, column), getattr(p, high))
        ]

    select = "SELECT r.n FROM reports r WHERE"
    channel("ranges", f"{select} r.{column} BETWEEN :{low} AND :{high}", kind)(closed)
    channel(
        "ranges",
        f"{select} :{high} > r.{column} AND :kind = r.kind AND r.{column} >= :{low}",
        f"{kind} and r.kind = _s.kind",
    )(half_open)


ranges("int", "sev")
ranges("long", "size")
ranges("double", "value")
ranges("date", "day")
ranges("timestamp", "at")


@channel(
    "ranges",
    "SELECT r.n FROM reports r JOIN users u ON u.user = :user AND r.sev > u.low AND r.sev <= u.high",
    "range of r.sev",
)
def range_of_a_user(w, p):
    return [
        (r.n,)
        for u in w.users
        for r in w.reports
        if same(u.user, p.user) and below(u.low, r.sev) and upto(r.sev, u.high)
    ]


@channel(
    "ranges",
    "SELECT r.n FROM reports r WHERE in_box(r.lat, r.lon, :south, :west, :north, :east)",
    "range of r.lat",
)
def box(w, p):
    def inside(r):
        if upto(p.west, p.east):
            return between(p.west, r.lon, p.east)
        return upto(p.west, r.lon) or upto(r.lon, p.east)

    return [(r.n,) for r in w.reports if between(p.south, r.lat, p.north) and inside(r)]


# Aggregates.


def groups(rows: list, column: str) -> dict[tuple, list]:
    found: dict[tuple, list] = {}
    for row in rows:
        found.setdefault((getattr(row, column),), []).append(row)
    return found


def known(rows: list, column: str) -> list:
    return [getattr(row, column) for row in rows if getattr(row, column) is not None]


def largest(values: list) -> Any:
    return max(values, key=order, default=None)


@channel(
    "aggregates",
    "SELECT kind, count(*) AS c, max(value) AS v, :n AS n FROM reports WHERE sev >= :sev GROUP BY kind HAVING c > :n",
)
def group_by_having(w, p):
    found = groups([r for r in w.reports if upto(p.sev, r.sev)], "kind")
    return [
        (kind, len(rows), largest(known(rows, "value")), p.n)
        for (kind,), rows in found.items()
        if below(p.n, len(rows))
    ]


@channel("aggregates", "SELECT sev, 7 AS seven, count(*) AS n FROM reports WHERE kind = :kind GROUP BY 1, 2")
def group_by_positions(w, p):
    found = groups([r for r in w.reports if same(r.kind, p.kind)], "sev")
    return [(sev, 7, len(rows)) for (sev,), rows in found.items()]


@channel("aggregates", "SELECT count(*) AS n FROM reports WHERE kind = :kind")
def count(w, p):
    return [(sum(same(r.kind, p.kind) for r in w.reports),)]


@channel("aggregates", "SELECT count(*) AS n FROM reports WHERE kind = :kind HAVING n >= :n")
def count_having(w, p):
    n = sum(same(r.kind, p.kind) for r in w.reports)
    return [(n,)] if upto(p.n, n) else []


@channel(
    "aggregates",
    "SELECT max(value) AS m, sum(sev) AS s, avg(sev) AS a, min(kind) AS k, count(DISTINCT kind) AS d, "
    "count(sev) AS c, count(*) FILTER (WHERE sev > :sev) AS f, sort_array(collect_list(n)) AS l, "
    "coalesce(sum(sev), -1) + 1 AS o, try_sum(sev) AS t, max_by(n, n) AS b, :sev AS mine, "
    "CASE WHEN count(*) = 0 THEN 'none' ELSE 'some' END AS w, listagg(DISTINCT kind) AS j, "
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS p, (SELECT count(*) FROM shelters) AS q "
    "FROM reports WHERE kind = :kind",
)
def aggregates_of_everything(w, p):
    rows = [r for r in w.reports if same(r.kind, p.kind)]
    sevs, numbers = known(rows, "sev"), sorted(r.n for r in rows)
    total = sum(sevs) if sevs else None
    middle = None
    if numbers:
        middle = (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) / 2
    return [
        (
            largest(known(rows, "value")), total, total / len(sevs) if sevs else None, p.kind if rows else None,
            1 if rows else 0, len(sevs), sum(below(p.sev, sev) for sev in sevs), numbers,
            0 if total is None else total + 1, total, numbers[-1] if numbers else None, p.sev,
            "some" if rows else "none", p.kind if rows else None, middle, len(w.shelters),
        )
    ]  # fmt: skip


@channel(
    "aggregates",
    "SELECT count(*) AS n, max(sev) AS m FROM reports r WHERE r.sev BETWEEN :low_int AND :high_int",
    "range of r.sev",
)
def aggregates_of_a_range(w, p):
    sevs = [r.sev for r in w.reports if between(p.low_int, r.sev, p.high_int)]
    return [(len(sevs), largest(sevs))]


@channel("aggregates", "SELECT count(*) AS n FROM reports WHERE kind = :kind UNION ALL SELECT :n AS n")
def count_beside_a_parameter(w, p):
    return [*count(w, p), (p.n,)]


# Order and limits.


@channel("orders", "SELECT sev, n FROM reports WHERE kind = :kind ORDER BY sev, n LIMIT 3", ordered=2)
def first_three(w, p):
    rows = [r for r in w.reports if same(r.kind, p.kind)]
    return [(r.sev, r.n) for r in sorted(rows, key=lambda r: (nulls_first(r.sev), r.n))][:3]


@channel("orders", "SELECT sev, n FROM reports WHERE kind = :kind ORDER BY 1 LIMIT 2", ordered=1)
def ties(w, p):
    rows = [r for r in w.reports if same(r.kind, p.kind)]
    return [(r.sev, r.n) for r in sorted(rows, key=lambda r: nulls_first(r.sev))]


@channel(
    "orders",
    "SELECT value, n FROM reports WHERE kind = :kind ORDER BY value DESC NULLS LAST, n LIMIT :k OFFSET 1",
    ordered=2,
)
def limit_by_a_parameter(w, p):
    rows = sorted((r for r in w.reports if same(r.kind, p.kind)), key=lambda r: -r.n)
    some = sorted((r for r in rows if r.value is not None), key=lambda r: order(r.value))
    none = [r for r in rows if r.value is None]
    return [(r.value, r.n) for r in [*none, *some][::-1]][1:][: max(0, p.k or 0)]


@channel("orders", "SELECT n FROM reports WHERE kind = :kind ORDER BY n DESC OFFSET :k", ordered=1)
def offset_by_a_parameter(w, p):
    rows = sorted((r.n for r in w.reports if same(r.kind, p.kind)), reverse=True)
    return [] if p.k is None else [(n,) for n in rows][max(0, p.k) :]


@channel("orders", "SELECT n FROM reports WHERE kind = :kind ORDER BY abs(n - :sev) DESC, -n LIMIT 2", ordered=1)
def order_by_what_is_not_shown(w, p):
    rows = [r.n for r in w.reports if same(r.kind, p.kind)]
    far = (lambda n: (0, -n)) if p.sev is None else (lambda n: (-abs(n - p.sev), -n))
    return [(n,) for n in sorted(rows, key=far)][:2]


@channel("orders", "SELECT DISTINCT sev FROM reports WHERE kind = :kind ORDER BY sev DESC", ordered=1)
def order_of_distinct(w, p):
    found = {r.sev for r in w.reports if same(r.kind, p.kind)}
    return [(sev,) for sev in sorted(found - {None}, reverse=True)] + [(None,)] * (None in found)


@channel(
    "orders",
    "SELECT kind, count(*) AS c FROM reports WHERE n >= :sev GROUP BY kind ORDER BY c * :sev DESC, kind LIMIT :k",
    ordered=2,
)
def order_of_groups(w, p):
    found = groups([r for r in w.reports if upto(p.sev, r.n)], "kind")
    rows = sorted(((kind, len(rows)) for (kind,), rows in found.items()), key=lambda row: nulls_first(utf8(row[0])))
    if p.sev is not None:
        rows.sort(key=lambda row: -row[1] * p.sev)
    return rows[: max(0, p.k or 0)]


@channel(
    "orders",
    "SELECT n, row_number() OVER (ORDER BY n DESC) AS at, count(*) OVER w AS c, "
    "lag(n) OVER (PARTITION BY sev ORDER BY n) AS before FROM reports WHERE kind = :kind "
    "WINDOW w AS (PARTITION BY sev)",
)
def windows(w, p):
    rows = sorted((r for r in w.reports if same(r.kind, p.kind)), key=lambda r: -r.n)
    answer = []
    for at, r in enumerate(rows, 1):
        peers = [x.n for x in rows if x.sev == r.sev]
        answer.append((r.n, at, len(peers), max((n for n in peers if n < r.n), default=None)))
    return answer


@channel(
    "orders",
    "SELECT kind, n FROM reports WHERE sev >= :sev QUALIFY row_number() OVER (PARTITION BY kind ORDER BY n) <= :k",
)
def qualify(w, p):
    found = groups(sorted((r for r in w.reports if upto(p.sev, r.sev)), key=lambda r: r.n), "kind")
    return [(kind, r.n) for (kind,), rows in found.items() for r in rows[: max(0, p.k or 0)]]


@channel(
    "orders",
    "SELECT d.n FROM (SELECT n, sev FROM reports WHERE kind = :kind ORDER BY n LIMIT 3) d WHERE d.sev > :sev",
)
def limit_of_a_derived_table(w, p):
    rows = sorted((r for r in w.reports if same(r.kind, p.kind)), key=lambda r: r.n)[:3]
    return [(r.n,) for r in rows if below(p.sev, r.sev)]


# Set operations.

FIRST, SECOND = "SELECT kind FROM reports WHERE sev >= :sev", "SELECT kind FROM shelters WHERE town = :town"


def kinds(w, p) -> tuple[list, list]:
    return [r.kind for r in w.reports if upto(p.sev, r.sev)], [s.kind for s in w.shelters if same(s.town, p.town)]


@channel("sets", f"{FIRST} UNION {SECOND}")
def union(w, p):
    first, second = kinds(w, p)
    return [(kind,) for kind in {*first, *second}]


@channel("sets", f"{FIRST} UNION ALL SELECT kind FROM shelters")
def union_all(w, p):
    return [(kind,) for kind in [*kinds(w, p)[0], *(s.kind for s in w.shelters)]]


@channel("sets", f"SELECT kind FROM reports EXCEPT {SECOND}")
def except_(w, p):
    return [(kind,) for kind in {r.kind for r in w.reports} - set(kinds(w, p)[1])]


@channel("sets", f"SELECT kind FROM reports EXCEPT ALL {SECOND}")
def except_all(w, p):
    return [(kind,) for kind in (Counter(r.kind for r in w.reports) - Counter(kinds(w, p)[1])).elements()]


@channel("sets", f"{FIRST} INTERSECT {SECOND}")
def intersect(w, p):
    first, second = kinds(w, p)
    return [(kind,) for kind in set(first) & set(second)]


@channel("sets", f"SELECT kind FROM reports EXCEPT ({FIRST} UNION {SECOND})")
def except_a_union(w, p):
    first, second = kinds(w, p)
    return [(kind,) for kind in {r.kind for r in w.reports} - {*first, *second}]


@channel("sets", f"({FIRST} UNION {SECOND}) INTERSECT SELECT :kind AS kind")
def intersect_of_a_union(w, p):
    first, second = kinds(w, p)
    return [(kind,) for kind in {*first, *second} & {p.kind}]


@channel("sets", f"{FIRST} UNION {SECOND} ORDER BY kind DESC LIMIT 2", ordered=1)
def order_of_a_union(w, p):
    first, second = kinds(w, p)
    found = {*first, *second}
    return ([(k,) for k in sorted(found - {None}, key=utf8, reverse=True)] + [(None,)] * (None in found))[:2]


# WITH and derived tables.

CHOSEN = "WITH c AS (SELECT n, kind, sev FROM reports WHERE sev >= :sev)"


def chosen(w, p) -> list:
    return [r for r in w.reports if upto(p.sev, r.sev)]


@channel("tables", f"{CHOSEN} SELECT n FROM c WHERE kind = :kind")
def cte(w, p):
    return [(r.n,) for r in chosen(w, p) if same(r.kind, p.kind)]


@channel("tables", f"{CHOSEN} SELECT a.n, b.n AS m FROM c a JOIN c b ON a.kind = b.kind AND a.n < b.n")
def cte_used_twice(w, p):
    rows = chosen(w, p)
    return [(a.n, b.n) for a in rows for b in rows if same(a.kind, b.kind) and a.n < b.n]


@channel("tables", f"{CHOSEN}, e(k, c) AS (SELECT kind, count(*) FROM c GROUP BY kind) SELECT max(c) AS m FROM e")
def cte_of_a_cte(w, p):
    return [(max((len(rows) for rows in groups(chosen(w, p), "kind").values()), default=None),)]


@channel(
    "tables",
    "WITH c AS (WITH e AS (SELECT n, kind FROM reports WHERE kind = :kind) SELECT max(n) AS n FROM e) "
    "SELECT r.n, r.kind FROM reports r LEFT JOIN c ON c.n = r.n WHERE c.n IS NULL",
)
def nested_cte(w, p):
    last = max((r.n for r in w.reports if same(r.kind, p.kind)), default=None)
    return [(r.n, r.kind) for r in w.reports if r.n != last]


@channel("tables", f"{CHOSEN} SELECT d.n FROM (SELECT n, kind FROM c ORDER BY n LIMIT 2) d WHERE d.kind = :kind")
def limit_of_a_cte(w, p):
    return [(r.n,) for r in sorted(chosen(w, p), key=lambda r: r.n)[:2] if same(r.kind, p.kind)]


@channel(
    "tables",
    "WITH c AS (SELECT kind, max(id) AS id FROM shelters GROUP BY kind) "
    "SELECT r.n, c.id FROM reports r JOIN c ON c.kind = r.kind WHERE r.sev BETWEEN :low_int AND :high_int",
    "range of r.sev",
)
def cte_without_parameters(w, p):
    last = {kind: max(s.id for s in rows) for (kind,), rows in groups(w.shelters, "kind").items()}
    return [
        (r.n, last[r.kind])
        for r in w.reports
        if r.kind is not None and r.kind in last and between(p.low_int, r.sev, p.high_int)
    ]


@channel(
    "tables",
    "SELECT d.n, e.c FROM (SELECT n, kind FROM reports WHERE kind = :kind) d "
    "JOIN (SELECT kind, count(*) AS c FROM shelters WHERE beds > :sev GROUP BY kind) AS e ON e.kind = d.kind",
)
def derived_tables(w, p):
    beds = sum(same(s.kind, p.kind) and below(p.sev, s.beds) for s in w.shelters)
    return [(r.n, beds) for r in w.reports if same(r.kind, p.kind) and beds]


# Conditions with queries of their own.


@channel("conditions", "SELECT n FROM reports r WHERE EXISTS (SELECT 1 FROM shelters s WHERE s.town = :town)")
def exists(w, p):
    return [(r.n,) for r in w.reports if any(same(s.town, p.town) for s in w.shelters)]


@channel(
    "conditions",
    "SELECT n FROM reports r WHERE NOT EXISTS (SELECT 1 FROM shelters s WHERE s.kind = r.kind AND s.beds > :sev)",
)
def not_exists(w, p):
    return [(r.n,) for r in w.reports if not any(same(s.kind, r.kind) and below(p.sev, s.beds) for s in w.shelters)]


@channel("conditions", "SELECT n FROM reports WHERE kind IN (SELECT kind FROM shelters WHERE beds > :sev)")
def in_(w, p):
    return [(r.n,) for r in w.reports if any(same(s.kind, r.kind) and below(p.sev, s.beds) for s in w.shelters)]


@channel("conditions", "SELECT n FROM reports WHERE kind NOT IN (SELECT kind FROM shelters WHERE town = :town)")
def not_in(w, p):
    """Nothing is known to be different from NULL."""
    there = [s.kind for s in w.shelters if same(s.town, p.town)]
    return [
        (r.n,)
        for r in w.reports
        if not there or (r.kind is not None and None not in there and r.kind not in there)
    ]  # fmt: skip


@channel("conditions", "SELECT n FROM reports WHERE n >= (SELECT avg(x.n) FROM reports x WHERE x.kind = :kind)")
def comparison_with_an_average(w, p):
    rows = [r.n for r in w.reports if same(r.kind, p.kind)]
    return [(r.n,) for r in w.reports if rows and r.n >= sum(rows) / len(rows)]


@channel(
    "conditions",
    "SELECT id, (SELECT n FROM reports WHERE kind = :kind ORDER BY n DESC LIMIT 1) AS last, "
    "(SELECT count(*) FROM reports WHERE kind = :kind) AS n FROM shelters WHERE town = :town",
)
def queries_among_the_columns(w, p):
    rows = [r.n for r in w.reports if same(r.kind, p.kind)]
    return [(s.id, max(rows, default=None), len(rows)) for s in w.shelters if same(s.town, p.town)]


@channel("conditions", f"{CHOSEN} SELECT s.id FROM shelters s WHERE s.kind IN (SELECT kind FROM c)")
def cte_in_a_condition(w, p):
    return [(s.id,) for s in w.shelters if any(same(s.kind, r.kind) for r in chosen(w, p))]


@channel("conditions", f"{CHOSEN} SELECT s.id, (SELECT count(*) FROM c WHERE c.kind = s.kind) AS n FROM shelters s")
def cte_among_the_columns(w, p):
    return [(s.id, sum(same(s.kind, r.kind) for r in chosen(w, p))) for s in w.shelters]


# Worlds.


def mostly(values: list, other: st.SearchStrategy) -> st.SearchStrategy:
    """One of few, so that rows and subscriptions meet; sometimes NULL."""
    return st.one_of(st.sampled_from([None, *values]), st.sampled_from(values), other)


DAY = date(2026, 3, 1)
NOON = datetime(2026, 3, 1, 12)
TINY, HUGE = 5e-324, 1.7e308
VALUES = {
    "string": mostly(["fire", "flood", "FIRE", "", "größe", "😀", "a'b"], st.text(max_size=3)),
    "int": mostly([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1], st.integers(-5, 5)),
    "long": mostly([-(2**63), -(2**53) - 1, -1, 0, 1, 7, 2**53, 2**53 + 1, 2**63 - 1], st.integers(-9, 9)),
    "double": mostly(
        [0.0, -0.0, 1.0, 1.5, TINY, 1e-300, -1e-9, 1e17, HUGE, -HUGE, math.inf, -math.inf, math.nan],
        st.floats(-10, 10),
    ),
    "date": mostly(
        [date.min, date(1582, 10, 10), date(1970, 1, 1), DAY, date.max],
        st.integers(-3, 3).map(lambda days: DAY + timedelta(days)),
    ),
    "timestamp": mostly(
        [datetime(1, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999999), NOON, datetime(9999, 12, 30)],
        st.integers(-5, 5).map(lambda micros: NOON + timedelta(microseconds=micros)),
    ),
    "lat": mostly(
        [47.07, 47.08, -47.0, 0.0, 90.0, -90.0, 89.9999, -89.9999, 91.0, -90.0001, math.nan, math.inf],
        st.floats(-90, 90),
    ),
    "lon": mostly(
        [15.43, 15.44, 0.0, 180.0, -180.0, 179.9999, -179.9999, 360.0, 361.0, math.nan], st.floats(-180, 180)
    ),
    "km": mostly(
        [0.0, 1e-6, 0.9, 1.3, 100.0, 250.0, 5000.0, 20015.0, 20016.0, 1e12, -1.0, math.inf, math.nan],
        st.floats(0, 20_020),
    ),
    "south": mostly([-90.0, 0.0, 47.0, -math.inf], st.floats(-90, 90)),
    "north": mostly([90.0, 0.0, 48.0, math.nan], st.floats(-90, 90)),
    "west": mostly([-180.0, 170.0, 15.0], st.floats(-180, 180)),
    "east": mostly([180.0, -170.0, 16.0], st.floats(-180, 180)),
}


def rows_of(schema: dict[str, str], most: int) -> st.SearchStrategy:
    row = st.fixed_dictionaries({name: VALUES.get(name, VALUES[kind]) for name, kind in schema.items()})
    return st.lists(row, min_size=most // 2, max_size=most).map(lambda rows: [Row(**row) for row in rows])


@st.composite
def worlds(draw):
    """All tables, and subscriptions with all parameters; some places are put on the edges of circles."""
    world = Row(
        reports=draw(rows_of(TABLES["reports"], 32)),
        users=draw(rows_of(TABLES["users"], 4)),
        shelters=draw(rows_of(TABLES["shelters"], 8)),
        subscriptions=draw(rows_of(PARAMETERS, 24)),
    )
    setattr(world, draw(st.sampled_from(["none", "none", "none", "reports", "users", "shelters"])), [])
    for name, user in zip(draw(st.permutations(["fire", "flood", "", None])), world.users, strict=False):
        user.user = name  # a keyed dataset has every key once
    for n, report in enumerate(world.reports):
        report.n = n
    for n, shelter in enumerate(world.shelters):
        shelter.id = n
    for n, subscription in enumerate(world.subscriptions):
        setattr(subscription, SUB, f"s{n}")
    for report, subscription in zip(world.reports, world.subscriptions, strict=False):
        bearing = draw(st.sampled_from([None, None, 0.0, 45.0, 90.0, 180.0, 271.0]))
        if bearing is not None and None not in (subscription.lat, subscription.lon, subscription.km):
            report.lat, report.lon = on_the_edge(subscription.lat, subscription.lon, subscription.km, bearing)
    return world


def on_the_edge(lat: float, lon: float, km: float, bearing: float) -> tuple[float, float]:
    """The place that far from another, in that direction."""
    if not (abs(lat) <= 90 and abs(lon) <= 360 and 0 <= km < 20_000):
        return lat, lon
    a, way, angle = math.radians(lat), math.radians(bearing), km / EARTH_KM
    sine = math.sin(a) * math.cos(angle) + math.cos(a) * math.sin(angle) * math.cos(way)
    there = math.asin(max(-1.0, min(1.0, sine)))
    turn = math.atan2(math.sin(way) * math.sin(angle) * math.cos(a), math.cos(angle) - math.sin(a) * math.sin(there))
    return math.degrees(there), math.remainder(lon + math.degrees(turn), 360.0)


# Answers.


@pytest.fixture(scope="module")
def session(spark):
    functions.register(spark)
    return spark


def show(session, world: Row) -> dict[str, DataFrame]:
    frames = {}
    for name, schema in {**TABLES, SUBSCRIPTIONS: {SUB: "string", **PARAMETERS}}.items():
        rows = getattr(world, name.lstrip("_"))
        columns = [pa.array([getattr(row, column) for row in rows], ARROW[kind]) for column, kind in schema.items()]
        frames[name] = session.createDataFrame(pa.table(columns, names=list(schema)))
        frames[name].createOrReplaceTempView(name)
    return frames


def answers(session, channels: list[Channel], subscriptions: DataFrame) -> dict[tuple[int, str], dict[str, list]]:
    """(channel, plain or indexed) -> subscription -> rows in their order; in two jobs, for each costs as much."""
    queries = [compiled(each.sql) for each in channels]
    made: dict[tuple[int, str], DataFrame] = {}
    for number, (checked, _, indexed) in enumerate(queries):
        subscriptions.select(SUB, *sorted(checked.parameters)).createOrReplaceTempView(SUBSCRIPTIONS)
        made |= {(number, one.name): session.sql(one.sql).cache() for one in (indexed.indexes if indexed else ())}
    levels: dict[tuple[int, str], set[int]] = {key: set() for key in made}
    for number, name, level in union_of([rows.select(F.lit(n), F.lit(i), "_level") for (n, i), rows in made.items()]):
        levels[number, name].add(level)

    frames = []
    for number, (checked, plain, indexed) in enumerate(queries):
        subscriptions.select(SUB, *sorted(checked.parameters)).createOrReplaceTempView(SUBSCRIPTIONS)
        versions = {"plain": plain}
        if indexed is not None:
            for one in indexed.indexes:
                made[number, one.name].createOrReplaceTempView(one.name)
            versions["indexed"] = indexed.at({one.name: levels[number, one.name] for one in indexed.indexes})
        for version, sql in versions.items():
            row = F.to_json(F.struct(*(F.col(f"`{name}`") for name in checked.columns)), {"ignoreNullFields": "false"})
            frames.append(session.sql(sql).select(F.lit(number), F.lit(version), SUB, RANK, row))
    found: dict[tuple[int, str], dict[str, list]] = {}
    for number, version, sub, _, row in sorted(union_of(frames)):
        found.setdefault((number, version), {}).setdefault(sub, []).append(tuple(json.loads(row).values()))
    for rows in made.values():
        rows.unpersist()
    return found


def union_of(frames: list[DataFrame]) -> list:
    return reduce(lambda one, other: one.unionAll(other), frames).collect() if frames else []


def as_json(row: tuple) -> tuple:
    special = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return tuple(
        special.get(value, "NaN" if math.isnan(value) else value)
        if isinstance(value, float)
        else value
        for value in row
    )  # fmt: skip


def hashable(row: tuple) -> tuple:
    return tuple(tuple(value) if isinstance(value, list) else value for value in row)


def difference(each: Channel, expected: list, got: list[tuple]) -> str:
    """What is wrong with an answer, if anything is."""
    sure = [as_json(row) for row in expected if not isinstance(row, Either)]
    maybe = [as_json(row.row) for row in expected if isinstance(row, Either)]
    had, must, may = (Counter(map(hashable, rows)) for rows in (got, sure, maybe))
    if each.ordered:
        keys = slice(0, each.ordered)
        if each.oracle is ties:  # which of those with the same key is not determined
            must, sure = must & had, sure[:2]
        if [row[keys] for row in got] != [row[keys] for row in sure]:
            return f"in another order: {got}, not {sure}"
    missing, extra = must - had, had - must - may
    return f"missing {list(missing)}, too many {list(extra)}" if missing or extra else ""


ALL = [each for channels in FAMILIES.values() for each in channels]
FEW = {"forms of circles": 2, "ranges": 3}  # examples, for it takes Spark long to plan an index


@pytest.mark.parametrize("family", FAMILIES)
def test_every_subscription_gets_what_it_would_get_alone(session, family):
    channels = FAMILIES[family]

    @settings(max_examples=FEW.get(family, 4), phases=[Phase.explicit, Phase.generate])  # to shrink would take minutes
    @example(world=Row(reports=[], users=[], shelters=[], subscriptions=[]))
    @given(world=worlds())
    def run(world):
        subscriptions = show(session, world)[SUBSCRIPTIONS]
        found = answers(session, channels, subscriptions)
        for number, each in enumerate(channels):
            for version in ("plain", "indexed") if each.indexes else ("plain",):
                for subscription in world.subscriptions:
                    got = found.get((number, version), {}).get(getattr(subscription, SUB), [])
                    wrong = difference(each, each.oracle(world, subscription), got)
                    assert not wrong, f"{version}: {each.sql}\n{subscription}\n{wrong}"
            if each.indexes:
                assert found.get((number, "indexed"), {}) == found.get((number, "plain"), {}), each.sql

    run()


@pytest.mark.parametrize("k", [2**31 - 1, 1, 0, -1])
def test_a_limit_is_counted_after_the_offset_however_large_it_is(session, k):
    checked = query.read(
        "SELECT n FROM reports WHERE n >= :low ORDER BY n LIMIT :k OFFSET 1", TABLES, {"low": "int", "k": "int"}
    )
    session.createDataFrame([(n,) for n in range(4)], "n LONG").createOrReplaceTempView("reports")
    session.createDataFrame([("s", 0, k)], f"{SUB} STRING, low INT, k INT").createOrReplaceTempView(SUBSCRIPTIONS)

    rows = session.sql(share.text(share.share(checked))).orderBy(RANK).collect()

    assert [row.n for row in rows] == [1, 2, 3][: max(k, 0)]


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.sql)
def test_an_index_is_found_wherever_one_can_serve(each):
    _, _, indexed = compiled(each.sql)

    assert tuple(one.kind for one in (indexed.indexes if indexed else ())) == each.indexes


# What is refused.


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "a channel has one query, but here are 0 statements"),
        ("-- nothing", "a channel has one query, but here are 0 statements"),
        ("SELECT n FROM reports; SELECT n FROM reports", "a channel has one query, but here are 2 statements"),
        ("SELECT n FROM", "the query does not parse"),
        ("SELECT n FROM reports WHERE", "the query does not parse"),
        ("SELECT (n FROM reports", "the query does not parse: Expecting )"),
        ("SELECT n FROM reports WHERE kind = 'fire", "the query does not parse: Missing ' from"),
        ("SELECT n FROM reports WHERE " + "(" * 3000, "the query does not parse: it is nested too deeply"),
        ("DELETE FROM reports", "a channel's query is a SELECT, but this is DELETE"),
        ("INSERT INTO reports SELECT * FROM reports", "a channel's query is a SELECT, but this is INSERT"),
        ("DROP TABLE reports", "a channel's query is a SELECT, but this is DROP"),
        ("CREATE TABLE x AS SELECT * FROM reports", "a channel's query is a SELECT, but this is CREATE"),
        ("SET spark.sql.ansi.enabled = true", "a channel's query is a SELECT, but this is SET"),
        ("VALUES (1)", "a channel's query is a SELECT, but this is VALUES"),
        ("reports", "a channel's query is a SELECT, but this is COLUMN"),
        ("SELECT /*+ BROADCAST(r) */ n FROM reports r", "a hint cannot be part of a channel's query"),
        ("SELECT n FROM reports TABLESAMPLE (10 PERCENT)", "TABLESAMPLE cannot be part of a channel's query"),
        ("SELECT TRANSFORM(n) USING 'cat' AS (n) FROM reports", "TRANSFORM cannot be part of a channel's query"),
        ("SELECT * FROM reports PIVOT (count(*) FOR sev IN (1, 2))", "PIVOT cannot be part of a channel's query"),
        ("SELECT n FROM reports SORT BY n", "SORT BY cannot be part of a channel's query"),
        ("SELECT n FROM reports DISTRIBUTE BY n", "DISTRIBUTE BY cannot be part of a channel's query"),
        ("(SELECT n FROM reports) LIMIT 1", "ORDER BY and LIMIT of a query in parentheses are written inside of them"),
        ("SELECT n FROM (reports r JOIN users u ON true)", "tables are joined without parentheses around them"),
        ("WITH c AS (n) SELECT n FROM reports", "WITH and UNION are of queries, and here is something else"),
        ("WITH RECURSIVE c AS (SELECT 1 AS n) SELECT n FROM c", "WITH RECURSIVE cannot be shared by subscriptions"),
        ("WITH users AS (SELECT 1 AS n) SELECT n FROM users", "WITH users has the name of a feed or dataset"),
        (
            "WITH c AS (SELECT n FROM reports) SELECT n FROM (WITH C AS (SELECT 1 AS n) SELECT n FROM c) d",
            "there are two WITH c; choose another name for one of them",
        ),
        ("SELECT rand() AS x FROM reports", "rand() gives another answer each time"),
        ("SELECT uuid() AS x FROM reports", "uuid() gives another answer each time"),
        ("SELECT n FROM reports WHERE at < now()", "gives another answer each time"),
        ("SELECT n FROM reports WHERE at < current_timestamp", "for the time there is execution_time()"),
        ("SELECT n FROM reports WHERE day = CURRENT_DATE()", "current_date() gives another answer each time"),
        ("SELECT unix_timestamp() AS x FROM reports", "gives another answer each time"),
        ("SELECT reflect('java.lang.System', 'exit') AS x FROM reports", "reflect() reaches outside"),
        ("SELECT identifier('_s._sub') AS x FROM reports", "identifier() reaches outside"),
        ("SELECT within_km(lat, lon, 1, 2) AS x FROM reports", "within_km() takes 5 arguments, but here are 4"),
        ("SELECT in_box(lat, lon) AS x FROM reports", "in_box() takes 6 arguments, but here are 2"),
        ("SELECT n FROM reports WHERE kind = ?", "a parameter is written :name, but here is ?"),
        ("SELECT n FROM reports WHERE kind = ${kind}", "a parameter is written :name, but here is"),
        ("SELECT n FROM reports WHERE kind = @kind", "a parameter is written :name, but here is"),
        ("SELECT n FROM reports WHERE kind = :kin", "there is no parameter 'kin'; known: "),
        ("SELECT n FROM report", "there is no feed or dataset 'report'; did you mean 'reports'? known: "),
        ("SELECT n FROM db.reports", "db.reports is not a feed or dataset; known: reports, shelters, users"),
        ("SELECT n FROM range(5)", "is not a feed or dataset"),
        ("SELECT n FROM parquet.`/etc`", "is not a feed or dataset"),
        ("SELECT nothing FROM reports", "there is no column 'nothing'; known: at, day, kind,"),
        ("SELECT r.kinds FROM reports r", "there is no column 'kinds'; did you mean 'kind'?"),
        ("SELECT x.n FROM reports r", "there is no table 'x'; known: r"),
        ("SELECT lat FROM reports r, users", "column 'lat' is in more than one table; write which one, as in r.lat"),
        ("SELECT n FROM reports r, users r", "the query cannot be resolved: Alias already used: r"),
        ("SELECT n, kind AS n FROM reports", "two columns are called 'n'; give one of them another name with AS"),
        ("SELECT n, kind AS N FROM reports", "two columns are called 'n'"),
        ("SELECT * FROM reports JOIN users ON user = kind", "two columns are called 'lat'"),
        ("SELECT count(*) FROM reports", "column 1 of the answer has no name; give it one with AS"),
        ("SELECT n, sev + 1 FROM reports", "column 2 of the answer has no name; give it one with AS"),
        ("SELECT n AS _sub FROM reports", "column '_sub': names that begin with '_' are kept for the rewritten query"),
        ("SELECT n FROM reports _s", "alias '_s': names that begin with '_' are kept for the rewritten query"),
        ("SELECT d.n FROM (SELECT n, kind FROM reports) d(n, _sub)", "alias '_sub': names that begin with '_'"),
        ("WITH _s AS (SELECT n FROM reports) SELECT n FROM _s", "alias '_s': names that begin with '_'"),
        ("SELECT to_json(struct(*)) AS j FROM reports", "a star is for SELECT * and count(*) only; name the columns"),
        ("SELECT count(r.*) AS j FROM reports r", "a star is for SELECT * and count(*) only; name the columns"),
    ],
)
def test_what_cannot_be_a_channel_is_refused_with_a_reason(sql, said):
    with pytest.raises(BadInput) as error:
        query.read(sql, TABLES, {})

    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT r.n FROM users u RIGHT JOIN reports r ON r.kind = :kind", "a RIGHT JOIN cannot be shared"),
        ("SELECT r.n FROM users u FULL JOIN reports r ON r.kind = :kind", "a FULL JOIN cannot be shared"),
        ("SELECT kind FROM reports WHERE sev = :sev GROUP BY ALL", "GROUP BY ALL, CUBE, ROLLUP and GROUPING SETS"),
        ("SELECT kind FROM reports WHERE sev = :sev GROUP BY CUBE (kind)", "cannot be shared; name the columns"),
        ("SELECT n FROM reports WHERE sev = :sev ORDER BY ALL", "ORDER BY ALL cannot be shared"),
        ("SELECT n FROM reports WHERE sev = :sev FETCH FIRST 3 ROWS ONLY", "FETCH cannot be shared"),
        ("SELECT DISTINCT n FROM reports WHERE sev = :sev ORDER BY kind", "SELECT DISTINCT can be ordered by columns"),
        (
            "SELECT DISTINCT n FROM reports WHERE sev = :sev QUALIFY rank() OVER (ORDER BY n) = 1",
            "SELECT DISTINCT with QUALIFY cannot be shared",
        ),
        ("SELECT n FROM reports UNION SELECT id FROM shelters ORDER BY n + :sev", "not by n + :sev"),
        ("SELECT n FROM reports UNION SELECT id FROM shelters LIMIT :k", "the LIMIT of UNION and its like cannot be"),
        ("SELECT 5 AS sev, count(*) AS c FROM reports WHERE n > :sev GROUP BY 1 HAVING sev > 1", "both a column of"),
        (
            "SELECT sum(count(*)) OVER () AS s FROM reports WHERE sev = :sev",
            "a window over the one row of an aggregate cannot be shared",
        ),
        (
            "SELECT kind, (SELECT max(id) FROM shelters WHERE town = :town) AS m FROM reports GROUP BY kind",
            "a query among the columns of an aggregate cannot use parameters; write it as a JOIN",
        ),
        (
            "SELECT approx_top_k(kind, 2) AS t FROM reports WHERE sev = :sev",
            "approx_top_k() over everything cannot be shared; GROUP BY a column",
        ),
        (
            "SELECT n FROM reports r WHERE EXISTS (SELECT 1 FROM shelters s WHERE s.kind = r.kind AND EXISTS "
            "(SELECT 1 FROM users u WHERE u.town = s.town AND u.user = :user))",
            "a query inside of a condition's own query cannot depend on parameters; write it as a JOIN",
        ),
        (
            f"{CHOSEN} SELECT id FROM shelters s WHERE EXISTS "
            "(SELECT 1 FROM users u LEFT JOIN c ON c.kind = u.town WHERE c.n IS NULL)",
            "WITH c depends on parameters, so a condition's own query cannot have it in a LEFT JOIN",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_with_a_reason(sql, said):
    with pytest.raises(BadInput) as error:
        compiled(sql)

    assert said in str(error.value)


def test_a_parameter_that_is_not_used_is_refused():
    with pytest.raises(BadInput, match="parameter 'km' is declared, but the query does not use :km"):
        query.read("SELECT n FROM reports WHERE kind = :kind", TABLES, {"kind": "string", "km": "double"})


def test_columns_are_called_as_they_are_written():
    tables = {"reports": {"reportId": "string", "kind": "string"}}
    sql = "WITH c AS (SELECT *, 1 AS One FROM reports) SELECT *, KIND AS TheKind FROM c WHERE kind = :Kind LIMIT 2"

    checked = query.read(sql, tables, {"Kind": "string"})

    assert checked.columns == ("reportId", "kind", "One", "TheKind")
    assert share.share(checked).named_selects == [SUB, *checked.columns, RANK]


def test_a_text_that_is_compared_with_a_number_is_not_indexed():
    """Spark reads '2.5' as 2 there, and the index would read it as 2.5."""
    for low in (":kind", "CAST(:low_int AS STRING)", "'1' + :low_int"):
        _, _, indexed = compiled(f"SELECT n FROM reports WHERE sev BETWEEN {low} AND :high_int")
        assert indexed is None


def test_types_are_found_whatever_the_case_of_their_columns():
    tables, parameters = {"reports": {"N": "long", "Sev": "int"}}, {"Low": "int", "High": "int"}
    checked = query.read("SELECT n FROM reports WHERE sev BETWEEN :Low AND :High", tables, parameters)

    indexed = index.use_indexes(share.share(checked), tables, parameters)

    assert [one.kind for one in indexed.indexes] == ["range of reports.sev"]


@pytest.mark.parametrize(("column", "always"), [("count(*)", True), ("coalesce(max(sev), 0)", True), ("sev", False)])
def test_an_aggregate_has_an_answer_also_when_there_is_nothing(column, always):
    checked = query.read(f"SELECT {column} AS x FROM reports WHERE kind = :kind", TABLES, {"kind": "string"})

    assert share.always_answers(share.share(checked)) is always


WORDS = sorted({word for each in ALL for word in re.findall(r"\w+|\S", each.sql)})


def survive(text: str) -> None:
    try:
        checked = query.read(text, TABLES, used(text))
        shared = share.share(checked)
        share.text(shared)
        index.use_indexes(shared, TABLES, used(text))
    except BadInput:
        pass


@settings(max_examples=150)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join)))
def test_no_text_does_harm(text):
    survive(text)
    survive(f"SELECT {text} FROM reports")


@settings(max_examples=250)
@given(data=st.data())
def test_no_query_with_a_fault_does_harm(data):
    words = re.findall(r"'[^']*'|\w+|\s+|\S", data.draw(st.sampled_from(ALL)).sql)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(st.sampled_from(WORDS), max_size=2))
        words = words or [""]

    survive(" ".join(words))


@pytest.mark.slow
def test_queries_that_are_long_are_read():
    survive("SELECT n FROM reports WHERE " + " AND ".join(["sev > 1"] * 2000))
    survive("SELECT " + " + ".join(["count(*)"] * 500) + " AS x FROM reports")
