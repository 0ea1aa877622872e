"""Every command: what it prints, writes and answers."""

from __future__ import annotations

import json
import math

import pytest

from trimtab.cli.main import COMMANDS
from trimtab.lab.experiments import EXPERIMENTS
from trimtab.place.registry import policies


def test_world_writes_a_folder_and_says_what_is_in_it(trimtab, tmp_path):
    done = trimtab("world", "maxdata", "--out", tmp_path / "w", "--publishers", 7, "--edges", 3, "--seed", 1, "--json")

    assert done.code == 0
    assert {k: done.json[k] for k in ("topics", "clients", "brokers", "links", "seed")} == {
        "topics": 7, "clients": 100, "brokers": 10, "links": 300, "seed": 1,
    }  # fmt: skip
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == [
        "brokers.csv",
        "clients.csv",
        "links.csv",
        "topics.csv",
    ]


def test_the_same_seed_makes_the_same_world(trimtab, tmp_path):
    for name in ("a", "b"):
        trimtab("world", "maxdata", "--out", tmp_path / name, "--rates", "uniform:1:3", "--spread", 0.2, "--seed", 5)

    for table in ("topics", "clients", "brokers", "links"):
        assert (tmp_path / "a" / f"{table}.csv").read_bytes() == (tmp_path / "b" / f"{table}.csv").read_bytes()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_plan_writes_a_placement_that_judge_confirms(trimtab, folder, tmp_path, form):
    plan = trimtab(
        "plan", folder, "--policy", "link/trim", "--time-limit", 0.3, "--out", tmp_path, "--format", form, "--json"
    )
    judged = trimtab("judge", folder, tmp_path / f"placement.{form}", "--json")

    assert (plan.code, judged.code) == (0, 0)
    assert plan.json["judgement"] == judged.json["judgement"]
    assert plan.json["placement"] == str(tmp_path / f"placement.{form}")


def test_the_json_of_plan_has_the_promised_shape(trimtab, folder):
    answer = trimtab(
        "plan", folder, "--family", "link", "--policy", "trim", "--time-limit", 0.3, "--seed", 3, "--json"
    ).json

    assert answer["policy"] == "link/trim"
    assert answer["seed"] == 3
    assert answer["seconds"] > 0
    assert answer["bound"].keys() >= {"kind", "value", "proven_optimal"}
    judgement = answer["judgement"]
    assert judgement.keys() >= {
        "received", "offered", "received_share", "brokers_used", "placed", "unplaced", "violations", "load",
    }  # fmt: skip
    assert judgement["load"].keys() == {"max", "mean", "total", "level", "cov"}
    assert judgement["placed"] + judgement["unplaced"] == 150
    assert judgement["received_share"] == judgement["received"] / judgement["offered"]
    assert judgement["received"] <= answer["bound"]["value"]


@pytest.mark.parametrize("name", policies("link"))
def test_every_policy_can_plan_and_is_held_against_a_bound(trimtab, folder, name):
    answer = trimtab("plan", folder, "--policy", name, "--time-limit", 0.3, "--json").json

    assert answer["judgement"]["violations"] == 0
    assert answer["bound"]["value"] >= answer["judgement"]["received"]


def test_plan_shows_a_table_and_where_the_placement_is(trimtab, folder, tmp_path):
    done = trimtab("plan", folder, "--family", "link", "--time-limit", 0.3, "--out", tmp_path)

    assert "data received" in done.out
    assert "upper bound" in done.out
    assert f"placement: {tmp_path / 'placement.csv'}" in done.out.replace("\n", "").replace("  ", " ")


def test_a_second_plan_replaces_the_first_whatever_its_format(trimtab, folder, tmp_path):
    trimtab("plan", folder, "--family", "link", "--policy", "gs", "--out", tmp_path / "p")
    trimtab("plan", folder, "--family", "link", "--policy", "gs", "--out", tmp_path / "p", "--format", "parquet")

    assert [p.name for p in (tmp_path / "p").iterdir()] == ["placement.parquet"]


def test_judge_says_no_to_a_placement_that_breaks_a_limit(trimtab, folder, tmp_path):
    """Exit code 1: the input is fine, the answer is no."""
    trimtab("plan", folder, "--family", "link", "--policy", "gs", "--out", tmp_path)
    lines = (tmp_path / "placement.csv").read_text().splitlines()
    crowded = [lines[0], *(line.rsplit(",", 1)[0] + ",m0" for line in lines[1:])]
    (tmp_path / "crowded.csv").write_text("\n".join(crowded) + "\n")

    done = trimtab("judge", folder, tmp_path / "crowded.csv")

    assert done.code == 1
    assert "broker 'm0' uses" in done.out
    assert trimtab("judge", folder, tmp_path / "crowded.csv", "--json").json["judgement"]["violations"] == 1


def test_compare_runs_every_policy_and_draws(trimtab, folder, tmp_path):
    plot = tmp_path / "plots" / "compare.png"
    done = trimtab("compare", folder, "--family", "link", "--time-limit", 0.3, "--plot", plot, "--json")

    answer = done.json
    assert [p["policy"] for p in answer["policies"]] == policies("link")
    assert plot.read_bytes().startswith(b"\x89PNG")
    best = answer["bound"]["value"]
    for one in answer["policies"]:
        assert one["gap"] == pytest.approx(1 - one["judgement"]["received"] / best)
        assert not math.isnan(one["seconds"])


def test_compare_shows_the_chosen_policies_in_a_table(trimtab, folder):
    done = trimtab("compare", folder, "--family", "link", "--time-limit", 0.3, "--policies", "gs, link/trim")

    assert done.code == 0
    assert "link/gs" in done.out
    assert "link/trim" in done.out
    assert "mkpbs" not in done.out


def test_compare_leaves_out_what_is_too_large_and_says_so(trimtab, tmp_path):
    trimtab("world", "maxdata", "--out", tmp_path, "--publishers", 5000, "--subscribers", 1000, "--machines", 100)

    done = trimtab("compare", tmp_path, "--family", "link", "--policies", "gs,ilp")

    assert done.code == 0
    assert "link/ilp left out: link/ilp would need" in done.out


def test_lab_lists_its_experiments(trimtab):
    names = {e["name"] for e in trimtab("lab", "list", "--json").json}

    assert names == set(EXPERIMENTS)
    assert "maxdata-grid" in trimtab("lab", "list").out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(trimtab, command):
    done = trimtab(command, "--help")

    assert done.code == 0
    assert "Usage: trimtab" in done.out
    assert "=None" not in done.out


def test_a_dollar_sign_in_a_path_is_drawn_as_it_is(trimtab, tmp_path):
    home = tmp_path / "w$^$"
    trimtab("world", "maxdata", "--out", home, "--publishers", 10)

    done = trimtab("compare", home, "--family", "link", "--policies", "gs", "--plot", tmp_path / "p.png")

    assert done.code == 0


def test_huge_numbers_give_finite_figures(trimtab, tmp_path):
    for name, text in {
        "topics": "id,rate\na,1e200\nb,2e200\n",
        "clients": "id\nx\n",
        "brokers": "id,bandwidth\nm,1e201\nn,3e200\n",
        "links": "topic,client,role\na,x,sub\nb,x,sub\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)

    assert trimtab("plan", tmp_path, "--family", "link", "--json").json["judgement"]["load"]["cov"] > 0


def test_json_never_holds_a_nan(trimtab, tmp_path):
    """A workload in which nothing is offered: shares and gaps must still be numbers."""
    for name, text in {
        "topics": "id,rate\na,0\n",
        "clients": "id\nx\n",
        "brokers": "id,bandwidth\nm,0\n",
        "links": "topic,client,role\na,x,sub\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)

    answer = json.loads(trimtab("plan", tmp_path, "--family", "link", "--json").out)

    assert answer["judgement"]["received_share"] == 1.0
    assert answer["bound"]["proven_optimal"] is True
