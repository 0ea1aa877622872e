"""A channel's shared plan with growing numbers of subscriptions: plain, by index, and the same with DuckDB and Polars.

There are 100,000 publications. All data is in memory, and every result row is computed for a count and a sum. All
engines take turns. DuckDB and Polars run the join as written; DuckDB also runs the join with the same grid.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trimtab.cli.output import print_table
from trimtab.pipeline.sql.shapes import COARSE, FINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

PUBLICATIONS = 100_000
SIZES = (10_000, 100_000, 1_000_000)
KINDS = 1_000
ROUNDS = 3
SEED = 0
CHECKED = 300  # subscriptions compared with the oracle
TABLES = {"reports": {"id": "long", "kind": "string", "lat": "double", "lon": "double"}}
NEAR = "distance_km(r.lat, r.lon, :lat, :lon) <= :km"
QUERIES = {
    "equality and radius": (
        f"SELECT r.id FROM reports r WHERE r.kind = :kind AND {NEAR}",
        ("kind", "lat", "lon", "km"),
    ),
    "radius alone": (f"SELECT r.id FROM reports r WHERE {NEAR}", ("lat", "lon", "km")),
}
TYPES = {"kind": "string", "lat": "double", "lon": "double", "km": "double"}
HAVERSINE = """12742.0176 * asin(least(1, sqrt(pow(sin(radians(s.lat - r.lat) / 2), 2)
    + cos(radians(r.lat)) * cos(radians(s.lat)) * pow(sin(radians(s.lon - r.lon) / 2), 2)))) <= s.km"""
ROW_CELLS = "greatest(1, floor(360 * cos(radians(least(90, greatest(-90, {y} * {h} - 90 + {h} / 2)))) / {h}))"


def main() -> None:
    from trimtab.pipeline.session import open_session
    from trimtab.pipeline.sql import functions

    rng = np.random.default_rng(SEED)
    pubs = _world(rng, PUBLICATIONS)
    spark = open_session("benchmark", {"spark.master": "local[2]", "spark.driver.memory": "8g"})
    try:
        functions.register(spark)
        _cached(spark, pubs).createOrReplaceTempView("reports")
        for size in SIZES:
            subs = _world(rng, size)
            subs = subs.append_column("km", pa.array(rng.uniform(5, 30, size)))
            subs = subs.rename_columns(["_sub", "kind", "lat", "lon", "km"])
            for name, (text, parameters) in QUERIES.items():
                _compare(spark, name, text, parameters, pubs, subs)
    finally:
        spark.stop()


def _world(rng: np.random.Generator, count: int) -> pa.Table:
    """Random places over Europe: 30 degrees of latitude by 40 of longitude."""
    return pa.table({
        "id": np.arange(count), "kind": pa.array([f"kind-{k}" for k in rng.integers(0, KINDS, count)]),
        "lat": rng.uniform(35, 65, count), "lon": rng.uniform(-10, 30, count),
    })  # fmt: skip


def _cached(spark: SparkSession, table: pa.Table) -> DataFrame:
    rows = spark.createDataFrame(table).repartition(2).cache()
    rows.count()
    return rows


def _compare(
    spark: SparkSession, name: str, text: str, parameters: tuple[str, ...], pubs: pa.Table, subs: pa.Table
) -> None:
    from trimtab.pipeline.sql import index, query, share

    types = {name_: TYPES[name_] for name_ in parameters}
    shared = share.share(query.read(text, TABLES, types))
    indexed = index.use_indexes(shared, TABLES, types)
    assert indexed is not None
    cached = _cached(spark, subs)
    cached.createOrReplaceTempView(share.SUBSCRIPTIONS)
    (index_,) = indexed.indexes
    began = time.perf_counter()
    rows = spark.sql(index_.sql).cache()
    rows.count()
    levels = [row[0] for row in rows.select("_level").distinct().collect()]
    built = time.perf_counter() - began
    rows.createOrReplaceTempView(index_.name)
    by_index = indexed.at({index_.name: levels}, PUBLICATIONS * len(levels) < subs.num_rows * 2)
    engines: dict[str, Callable[[], tuple[int, int]]] = {}
    if name != "radius alone" or subs.num_rows <= 10_000:
        engines["Spark, plain"] = lambda: _spark(spark, share.text(shared))
    engines["Spark, by index"] = lambda: _spark(spark, by_index)
    engines |= _peers(name, pubs, subs, levels)
    times_s: dict[str, list[float]] = {engine: [] for engine in engines}
    answers = {}
    for round_ in range(ROUNDS + 1):  # the first round is a warm-up
        for engine, run in engines.items():
            began = time.perf_counter()
            answers[engine] = run()
            if round_:
                times_s[engine].append(time.perf_counter() - began)
    assert len(set(answers.values())) == 1, answers
    _check(spark, by_index, pubs, subs, name)
    best = {engine: min(times) for engine, times in times_s.items()}
    base = best.get("Spark, plain")
    print_table(
        f"{name}: {PUBLICATIONS:,} publications x {subs.num_rows:,} subscriptions, {next(iter(answers.values()))[0]:,} "
        f"results; index of {rows.count():,} rows built in {built:.1f} s",
        ["engine", "best", "median", "plain / engine", "engine / DuckDB's best"],
        [
            (
                engine, f"{best[engine]:.2f} s", f"{statistics.median(times_s[engine]):.2f} s",
                f"{base / best[engine]:.2f} x" if base else "", f"{best[engine] / _duckdb(best):.2f} x",
            )
            for engine in engines
        ],
        note=f"equal to the oracle on {CHECKED} subscriptions",
    )  # fmt: skip
    sys.stdout.flush()
    rows.unpersist()
    cached.unpersist()


def _duckdb(best: dict[str, float]) -> float:
    return min(time for engine, time in best.items() if engine.startswith("DuckDB"))


def _spark(spark: SparkSession, sql: str) -> tuple[int, int]:
    row = spark.sql(f"SELECT count(*), sum(id) FROM ({sql})").first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)


def _peers(name: str, pubs: pa.Table, subs: pa.Table, levels: list[int]) -> dict[str, Callable[[], tuple[int, int]]]:
    import duckdb
    import polars as pl

    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    for table, rows in (("r0", pubs), ("s0", subs)):
        connection.register("arrow", rows)
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM arrow")
        connection.unregister("arrow")
    equal = "r.kind = s.kind AND " if name == "equality and radius" else ""
    _duckdb_grid(connection, levels, COARSE if equal else FINE)

    def sql(text: str) -> Callable[[], tuple[int, int]]:
        def run() -> tuple[int, int]:
            count, total = connection.execute(text).fetchone()  # type: ignore[misc]
            return int(count), int(total or 0)

        return run

    cells = "r.level = s.level AND r.y = s.y AND r.x = s.x"
    engines = {
        "DuckDB, the same grid": sql(
            f"SELECT count(*), sum(r.id) FROM ({_duckdb_cells()}) r JOIN s1 s ON {equal}{cells} AND {HAVERSINE}"
        )
    }
    if equal:
        engines["DuckDB, as written"] = sql(f"SELECT count(*), sum(r.id) FROM r0 r JOIN s0 s ON {equal}{HAVERSINE}")
        left, right = pl.from_arrow(pubs).lazy(), pl.from_arrow(subs).lazy()  # type: ignore[union-attr]

        def polars() -> tuple[int, int]:
            joined = left.join(right, on="kind").with_columns(
                a=((pl.col("lat_right") - pl.col("lat")).radians() / 2).sin() ** 2
                + pl.col("lat").radians().cos() * pl.col("lat_right").radians().cos()
                * ((pl.col("lon_right") - pl.col("lon")).radians() / 2).sin() ** 2
            )  # fmt: skip
            near = joined.filter(12742.0176 * pl.min_horizontal(1.0, pl.col("a").sqrt()).arcsin() <= pl.col("km"))
            count, total = near.select(pl.len(), pl.col("id").sum()).collect(engine="streaming").row(0)
            return int(count), int(total or 0)

        if subs.num_rows <= 100_000:  # beyond that, Polars holds all pairs of a kind in memory
            engines["Polars, as written"] = polars
    return engines


def _duckdb_grid(connection: Any, levels: list[int], radii: int) -> None:
    connection.execute("CREATE TABLE levels AS SELECT unnest(?) AS level", [levels])
    n = ROW_CELLS.format(y="y", h="h")
    connection.execute(f"""CREATE TABLE s1 AS
        SELECT * EXCLUDE (x), CAST(((x % n) + n) % n AS BIGINT) AS x FROM (
        SELECT *, unnest(range(CAST(floor((lon - reach + 180) / 360 * n) AS BIGINT),
            CAST(floor((lon + reach + 180) / 360 * n) AS BIGINT) + 1)) AS x FROM (
        SELECT *, {n} AS n FROM (
        SELECT *, unnest(range(CAST(floor((lat - d + 90) / h) AS BIGINT),
            CAST(floor((lat + d + 90) / h) AS BIGINT) + 1)) AS y,
            degrees(asin(least(1, sin(radians(d)) / cos(radians(lat))))) + 1e-9 AS reach FROM (
        SELECT *, pow(2, level) AS h FROM (
        SELECT *, CAST(ceil(log2({radii} * d)) AS INT) AS level FROM (
        SELECT *, degrees(km / 6371.0088) * (1 + 1e-9) + 1e-9 AS d FROM s0))))))""")


def _duckdb_cells() -> str:
    n = ROW_CELLS.format(y="y", h="h")
    return f"""SELECT *, CAST(floor((lon + 180) / 360 * n) AS BIGINT) % CAST(n AS BIGINT) AS x FROM (
        SELECT *, {n} AS n FROM (
        SELECT *, CAST(floor((lat + 90) / h) AS BIGINT) AS y FROM (
        SELECT *, pow(2, level) AS h FROM r0, levels)))"""


def _check(spark: SparkSession, sql: str, pubs: pa.Table, subs: pa.Table, name: str) -> None:
    """Compare the results of some subscriptions with those of plain numpy."""
    chosen = np.random.default_rng(1).choice(subs.num_rows, CHECKED, replace=False)
    ids = ", ".join(str(row) for row in chosen)
    rows = spark.sql(f"SELECT _sub, id FROM ({sql}) WHERE _sub IN ({ids})").collect()
    results: dict[int, set[int]] = {int(row): set() for row in chosen}
    for sub, identity in rows:
        results[sub].add(identity)
    lat, lon = (np.radians(pubs[column].to_numpy()) for column in ("lat", "lon"))
    kinds = np.array(pubs["kind"].to_pylist())
    for row in map(int, chosen):
        a, b = (float(np.radians(subs[column][row].as_py())) for column in ("lat", "lon"))
        h = np.sin((lat - a) / 2) ** 2 + np.cos(a) * np.cos(lat) * np.sin((lon - b) / 2) ** 2
        near = 12742.0176 * np.arcsin(np.minimum(1, np.sqrt(h))) <= subs["km"][row].as_py()
        if name == "equality and radius":
            near &= kinds == subs["kind"][row].as_py()
        assert results[row] == set(np.flatnonzero(near).tolist()), row
