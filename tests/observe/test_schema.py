"""A report's declaration, and the Arrow and Spark forms that follow from it."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from trimtab.observe.histogram import Histogram
from trimtab.observe.report import BrokerReport, TopicReport
from trimtab.observe.schema import arrow_schema, arrow_type, columns, spark_ddl, spark_type


class Inner(msgspec.Struct):
    count: int
    delays: Histogram


class Outer(msgspec.Struct):
    name: str
    share: float
    on: bool | None
    parts: dict[str, Inner]
    rows: list[list[int]] | None = None


def test_the_spark_form_has_all_fields_in_their_order():
    assert spark_ddl(Outer) == (
        "name STRING, share DOUBLE, on BOOLEAN, parts MAP<STRING, STRUCT<count: LONG, delays: ARRAY<ARRAY<LONG>>>>, "
        "rows ARRAY<ARRAY<LONG>>"
    )


def test_some_fields_only_or_as_text():
    assert spark_ddl(Outer, ("share", "name")) == "share DOUBLE, name STRING"
    assert spark_ddl(Outer, ("name", "parts"), as_text=("parts",)) == "name STRING, parts STRING"


def test_the_arrow_form_has_the_same_fields():
    schema = arrow_schema(Outer)

    assert schema.names == list(Outer.__struct_fields__)
    inner = pa.struct([("count", pa.int64()), ("delays", pa.list_(pa.list_(pa.int64())))])
    assert schema.field("parts").type == pa.map_(pa.string(), inner)
    assert schema.field("on").type == pa.bool_()


def test_arrow_holds_a_report_as_its_json_tells_it():
    topics = {"cam": TopicReport(in_msgs=3, latency=Histogram({7: 2}), result_bytes=11)}
    report = BrokerReport(
        "b1", 5.0, 1.0, topics=topics, links={"taxi": {"cam": ["pub"]}}, published={"taxi": {"cam": 9}}
    )

    table = pa.Table.from_pylist(
        [_maps(report.encode(), arrow_schema(BrokerReport))], schema=arrow_schema(BrokerReport)
    )

    (row,) = table.to_pylist(maps_as_pydicts="strict")
    told = {name: value for name, value in row["topics"]["cam"].items() if value is not None}
    assert told == topics["cam"].encode()
    assert {name: value for name, value in row.items() if name != "topics"} == {
        name: value for name, value in report.encode().items() if name != "topics"
    }


def _maps(row, schema):
    """Arrow takes a map as pairs."""

    def pairs(value, kind):
        if pa.types.is_map(kind) and value is not None:
            return [(key, pairs(each, kind.item_type)) for key, each in value.items()]
        return value

    return {field.name: pairs(row[field.name], field.type) for field in schema}


@pytest.mark.parametrize("declared", [TopicReport, BrokerReport])
def test_every_field_of_a_report_has_both_forms(declared):
    for kind in columns(declared).values():
        assert spark_type(kind)
        assert isinstance(arrow_type(kind), pa.DataType)
