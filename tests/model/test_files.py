"""Workload folders and placement files: there and back, and every kind of trouble named by file, row and value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given

from helpers.strategies import workload, workloads
from trimtab.errors import BadInput, BadTable
from trimtab.model.folder import read_workload, write_workload
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.placement import Placement
from trimtab.model.placement_file import read_keys, read_placement, write_keys, write_placement
from trimtab.model.problem import Problem
from trimtab.model.workload import SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge_routing

GOOD = {
    "topics": "id,rate,latency_ms\na,1,\nb,2.5,40\n",
    "clients": "id,lat,lon\nx,-37.8,144.9\ny,1,2\n",
    "brokers": "id,bandwidth\nm,10\nn,20\n",
    "links": "topic,client,role\na,x,sub\nb,x,sub\nb,y,pub\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in GOOD.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def same(one: Workload, other: Workload) -> bool:
    tables = all(
        getattr(one, t).ids == getattr(other, t).ids
        and getattr(one, t).present() == getattr(other, t).present()
        and all(
            np.array_equal(getattr(getattr(one, t), c), getattr(getattr(other, t), c), equal_nan=True)
            for c in getattr(one, t).present()[1:]
        )
        for t in ("topics", "clients", "brokers")
    )
    located = all(
        same_columns(getattr(one, t).coordinate, getattr(other, t).coordinate, "point", "height", "adjustment")
        for t in ("clients", "brokers")
    )
    links = same_columns(one.links, other.links, "topic", "client", "role")
    return tables and located and links and same_columns(one.rtt, other.rtt, "client", "broker", "rtt_ms")


def same_columns(one, other, *columns: str) -> bool:
    """A table without rows is as good as none."""
    if not all(known(each) for each in (one, other)):
        return known(one) == known(other)
    pairs = [(getattr(one, column), getattr(other, column)) for column in columns]
    return all(a is b if a is None or b is None else np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def known(table) -> bool:
    return table is not None and len(table) > 0 and bool(np.any(getattr(table, "known", True)))


def test_a_folder_is_read(folder):
    load = read_workload(folder)

    assert load.topics.rate.tolist() == [1.0, 2.5]
    assert np.isnan(load.topics.latency_ms[0])
    assert load.clients.lat.tolist() == [-37.8, 1.0]
    assert load.links.topic.tolist() == [0, 1, 1]
    assert load.links.role.tolist() == [1, 1, 0]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@given(load=workloads())
def test_what_is_written_is_read_back(tmp_path_factory, form, load):
    if not (len(load.topics) and len(load.brokers) and len(load.links)):
        return
    home = tmp_path_factory.mktemp("workload")

    write_workload(load, home, form)

    assert same(read_workload(home), load)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_names_with_commas_quotes_and_umlauts_survive(tmp_path, form):
    load = Workload(
        Topics(Ids(['a,"b"', "zürich/ü"]), [0.1, 1e-300]),
        Clients(Ids(["c 1"])),
        Brokers(Ids(["b\tx"]), [1 / 3]),
        Links.subscriptions([0, 1], [0, 0]),
    )

    write_workload(load, tmp_path, form)

    assert same(read_workload(tmp_path), load)


def test_writing_the_other_format_leaves_one_of_each_table(folder):
    load = read_workload(folder)

    write_workload(load, folder, "parquet")

    assert sorted(p.name for p in folder.iterdir()) == [
        f"{n}.parquet" for n in ("brokers", "clients", "links", "topics")
    ]


def test_parquet_ids_may_be_numbers_or_dictionaries(folder):
    (folder / "topics.csv").unlink()
    (folder / "links.csv").unlink()
    pa.parquet.write_table(pa.table({"id": [7, 8], "rate": [1, 2]}), folder / "topics.parquet")
    links = {"topic": [7, 8], "client": pa.array(["x", "y"]).dictionary_encode(), "role": ["sub", "sub"]}
    pa.parquet.write_table(pa.table(links), folder / "links.parquet")

    load = read_workload(folder)

    assert list(load.topics.ids) == ["7", "8"]
    assert load.links.client.tolist() == [0, 1]


def test_the_id_column_may_be_called_what_it_names(folder):
    (folder / "brokers.csv").write_text("broker,bandwidth\nm,10\n")

    assert list(read_workload(folder).brokers.ids) == ["m"]


BROKEN = [
    ("topics", None, "has neither topics.csv nor topics.parquet"),
    ("topics", "", "topics.csv: is empty; the first line must name the columns"),
    ("topics", "id,rate\n", "topics.csv: has no rows; a workload needs at least one topic"),
    ("links", "topic,client,role\n", "links.csv: has no rows"),
    ("topics", "id,size_bytes\na,1\nb,1\n", "topics.csv has no column 'rate' (always needed); it has: id, size_bytes"),
    ("topics", "name,rate\na,1\nb,1\n", "topics.csv has no column 'id' (the topic's name); it has: name, rate"),
    ("links", "topic,client\na,x\n", "links.csv has no column 'role' (pub or sub)"),
    ("topics", "id,rate\na,1\na,2\n", "topics.csv, row 2 (line 3): id 'a' stands in row 1 already; ids must differ"),
    ("topics", "id,rate\na,1\n,2\n", "topics.csv, row 2 (line 3): id is empty"),
    (
        "topics",
        "id,rate\na,1\nb,-2\n",
        "topics.csv, row 2 (line 3): rate is -2, but must be a finite number, zero or more",
    ),
    ("topics", "id,rate\na,nan\nb,2\n", "topics.csv, row 1 (line 2): rate is nan, but must be"),
    ("topics", "id,rate\na,1\nb,inf\n", "topics.csv, row 2 (line 3): rate is inf, but must be"),
    ("topics", "id,rate\na,1\nb,fast\n", "topics.csv, row 2 (line 3): rate is 'fast', but must be a number"),
    ("topics", "id,rate\na,1\nb,\n", "topics.csv, row 2 (line 3): rate is empty, but must be a number"),
    ("topics", "id,rate,rate\na,1,2\n", "topics.csv: column 'rate' stands twice"),
    ("topics", "id,rate\na,1,7\n", "topics.csv: cannot be read"),
    ("brokers", "id,bandwidth\nm,-1\n", "brokers.csv, row 1 (line 2): bandwidth is -1"),
    (
        "links",
        "topic,client,role\na,x,sub\nz,x,sub\n",
        "links.csv, row 2 (line 3): topic is 'z', which topics.csv does not list",
    ),
    (
        "links",
        "topic,client,role\na,q,sub\n",
        "links.csv, row 1 (line 2): client is 'q', which clients.csv does not list",
    ),
    (
        "links",
        "topic,client,role\na,x,owner\n",
        "links.csv, row 1 (line 2): role is 'owner', but must be one of pub, sub",
    ),
    ("links", "topic,client,role\na,x,\n", "links.csv, row 1 (line 2): role is empty, but must be one of pub, sub"),
    (
        "links",
        "topic,client,role\n,x,sub\n",
        "links.csv, row 1 (line 2): topic is empty, which topics.csv does not list",
    ),
    (
        "links",
        "topic,client,role\na,x,sub\na,x,sub\n",
        "links.csv, row 2 (line 3): topic 'a', client 'x', role sub stands in row 1",
    ),
]


@pytest.mark.parametrize(("table", "text", "sentence"), BROKEN, ids=[s[:60] for _, _, s in BROKEN])
def test_trouble_is_named_by_file_row_and_value(folder, table, text, sentence):
    path = folder / f"{table}.csv"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)

    with pytest.raises(BadInput) as caught:
        read_workload(folder)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="does not exist; a workload is a folder with topics"):
        read_workload(tmp_path / "nowhere")


def test_two_files_of_one_table_are_ambiguous(folder):
    pa.parquet.write_table(pa.table({"id": ["a"], "rate": [1]}), folder / "topics.parquet")

    with pytest.raises(BadInput, match=r"both topics.csv and topics.parquet; keep one"):
        read_workload(folder)


def test_bytes_that_are_not_parquet(folder):
    (folder / "topics.csv").rename(folder / "topics.parquet")

    with pytest.raises(BadInput, match=r"topics.parquet: cannot be read"):
        read_workload(folder)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("unit", ["topic", "client", "link"])
def test_a_placement_is_read_back(tmp_path, ending, unit):
    load = workload([1, 2, 3], [50, 60], [(0, 0), (2, 1), (1, 1)], publications=[(0, 1)])
    problem = Problem(load, unit)
    broker = np.array([1, -1, 0][: problem.units], np.int32)

    write_placement(problem, Placement(unit, broker), tmp_path / f"placement.{ending}")
    again, placement = read_placement(load, tmp_path / f"placement.{ending}")

    assert (again.unit, placement.broker.tolist()) == (unit, broker.tolist())


def test_a_placement_by_others_may_be_in_any_order_and_leave_units_out(tmp_path):
    load = workload([1, 2, 3], [50, 60], [(0, 0), (2, 1), (1, 1)])
    (tmp_path / "p.csv").write_text("broker,client,topic,unit\nb1,c1,t1,link\nb0,c0,t0,link\n")

    _, placement = read_placement(load, tmp_path / "p.csv")

    assert placement.broker.tolist() == [0, -1, 1]


BROKEN_PLACEMENTS = [
    (
        "unit,topic,client,broker\nlink,t0,c0,b9\n",
        "row 1 (line 2): broker is 'b9', which the workload's brokers do not list",
    ),
    ("unit,topic,client,broker\nlink,t9,c0,b0\n", "row 1 (line 2): topic is 't9', which topics does not list"),
    ("unit,topic,client,broker\nlink,t1,c0,b0\n", "row 1 (line 2): client 'c0' does not subscribe to topic 't1'"),
    (
        "unit,topic,client,broker\nlink,t0,c0,b0\nlink,t0,c0,b0\n",
        "row 2 (line 3): this link stands in an earlier row already",
    ),
    (
        "unit,topic,client,broker\nrack,t0,c0,b0\n",
        "row 1 (line 2): unit is 'rack', but must be one of topic, client, link",
    ),
    (
        "unit,topic,client,broker\nlink,t0,c0,b0\ntopic,t0,,b0\n",
        "row 2 (line 3): unit is 'topic', but the rows above say 'link'",
    ),
    ("unit,topic,broker\nlink,t0,b0\n", "has no column 'client' (which client)"),
    ("unit,topic,client\nlink,t0,c0\n", "has no column 'broker' (the broker of each unit; empty = unplaced)"),
    ("unit,topic,client,broker\n", "has no rows"),
]


@pytest.mark.parametrize(("text", "sentence"), BROKEN_PLACEMENTS, ids=[s[:60] for _, s in BROKEN_PLACEMENTS])
def test_trouble_in_a_placement_is_named_by_row_and_value(tmp_path, text, sentence):
    load = workload([1, 2], [50], [(0, 0), (1, 1)])
    (tmp_path / "p.csv").write_text(text)

    with pytest.raises(BadInput) as caught:
        read_placement(load, tmp_path / "p.csv")

    assert sentence in str(caught.value)


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"ends in '.txt', but tables are .csv or .parquet"):
        read_placement(workload([1], [1], [(0, 0)]), tmp_path / "p.txt")


def test_an_empty_line_is_no_row_but_counts_as_a_line(folder):
    (folder / "topics.csv").write_text("id,rate\na,5\n\nb,x\n")

    with pytest.raises(BadInput, match=r"topics.csv, row 2 \(line 4\): rate is 'x'"):
        read_workload(folder)


def test_a_column_of_lists_is_refused(folder):
    (folder / "topics.csv").unlink()
    pa.parquet.write_table(pa.table({"id": ["a", "b"], "rate": [[1], [2]]}), folder / "topics.parquet")

    with pytest.raises(BadInput, match=r"topics.parquet: rate is of type list<.*>, but must be text or a number"):
        read_workload(folder)


def test_a_format_that_does_not_exist_is_refused_before_anything_is_touched(folder):
    load = read_workload(folder)

    with pytest.raises(BadInput, match="format is 'json', but must be one of csv, parquet"):
        write_workload(load, folder, "json")

    assert len(list(folder.iterdir())) == 4


def test_a_folder_in_the_place_of_a_table_is_refused(folder):
    load = read_workload(folder)
    (folder / "topics.parquet").mkdir()

    with pytest.raises(BadInput, match=r"topics.parquet cannot be written: there is a folder of that name"):
        write_workload(load, folder, "parquet")


def test_a_failed_write_leaves_the_old_folder_as_it_was(folder, monkeypatch):
    """All tables are written beside the old ones before the first takes its place."""
    load = read_workload(folder)
    calls = []

    def fail_on_the_third(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    real = pa.csv.write_csv
    monkeypatch.setattr(pa.csv, "write_csv", fail_on_the_third)

    with pytest.raises(BadInput, match="cannot be written: No space left on device"):
        write_workload(load, folder)

    assert {p.name: p.read_text() for p in folder.iterdir()} == {f"{n}.csv": t for n, t in GOOD.items()}


def test_a_placement_of_several_units_is_written_and_read(tmp_path):
    workload = Workload(
        Topics(Ids(["whole", "linked", "spread"]), [1.0, 2.0, 3.0]), Clients(Ids(["ann", "bob"])),
        Brokers(Ids(["b1", "b2"])), Links([0, 1, 2, 2], [0, 0, 0, 1], [SUB, SUB, SUB, SUB]),
    )  # fmt: skip
    placed = {
        Key("topic", "whole", ""): "b1", Key("link", "linked", "ann"): "", Key("client", "", "ann"): "b2",
        Key("client", "", "bob"): "b1",
    }  # fmt: skip
    write_keys(placed, tmp_path / "placement.csv")

    assert read_keys(workload, tmp_path / "placement.csv") == placed
    judged = judge_routing(workload, RoutingTable.of_keys(placed))
    assert (judged.placed, judged.unplaced, judged.received, judged.offered) == (3, 1, 7.0, 9.0)
    assert judged.load.per_broker.tolist() == [2.0 + 6.0, 6.0]
    _, clients = read_placement(workload, tmp_path / "placement.csv", "client")
    assert clients.broker.tolist() == [1, 0]
    with pytest.raises(BadTable, match="unit is 'link', but the rows above say 'topic'"):
        read_placement(workload, tmp_path / "placement.csv")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("topic,nope,,b1", "row 1 .*topic is 'nope', which topics does not list"),
        ("client,,ann,b1\nlink,linked,,b1", "row 2 .*client is empty"),
        ("client,,ann,b1\nclient,,ann,b2", "row 2 .*client ann stands in an earlier row already"),
        ("broker,,ann,b1", "unit is 'broker', but must be one of"),
        ("client,,ann,b9", "broker is 'b9', which the workload's brokers do not list"),
    ],
)
def test_a_bad_placement_of_several_units_says_where_and_why(tmp_path, rows, problem):
    workload = Workload(
        Topics(Ids(["whole", "linked"]), [1.0, 2.0]), Clients(Ids(["ann"])), Brokers(Ids(["b1", "b2"])),
        Links([0, 1], [0, 0], [SUB, SUB]),
    )  # fmt: skip
    (tmp_path / "p.csv").write_text(f"unit,topic,client,broker\n{rows}\n")

    with pytest.raises(BadTable, match=problem):
        read_keys(workload, tmp_path / "p.csv")
