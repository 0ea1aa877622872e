"""The SQL functions of channels, in a Spark session. They are SQL themselves, so Spark compiles them into the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.pipeline.geography import GRID, PLACES
from trimtab.pipeline.sql.shapes import SPANS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    for name, (arguments, kind, expression) in {**PLACES, **GRID, **SPANS}.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({arguments}) RETURNS {kind} RETURN {expression}")
