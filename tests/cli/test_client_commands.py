"""Homes for clients on the command line: world, plan, judge, compare, lab."""

from __future__ import annotations

import pytest

from trimtab.place.registry import policies


@pytest.fixture
def bad(trimtab, tmp_path):
    home = tmp_path / "bad"
    options = ("--brokers", 4, "--subscribers", 200, "--backend", 60, "--fewest", 2, "--most", 6)
    assert trimtab("world", "bad", "--out", home, *options).code == 0
    assert trimtab("plan", home, "--policy", "client/nearest", "--out", home / "now").code == 0
    return home


@pytest.fixture
def field(trimtab, tmp_path):
    home = tmp_path / "reloc"
    assert trimtab("world", "reloc", "--out", home, "--topics", 8, "--grid", 2).code == 0
    return home


def test_plan_moves_few_and_judge_agrees(trimtab, bad):
    now = bad / "now" / "placement.csv"

    planned = trimtab("plan", bad, "--family", "client", "--current", now, "--out", bad / "then", "--json").json
    judged = trimtab("judge", bad, bad / "then" / "placement.csv", "--current", now, "--json").json

    assert judged["judgement"] == planned["judgement"]
    moves = planned["judgement"]["moves"]
    assert 0 < moves["least"] <= moves["units"] < 100
    assert planned["bound"]["figure"] == "max_load"
    assert planned["judgement"]["load"]["cov"] < 0.05


def test_a_budget_is_kept(trimtab, bad):
    given = ("--family", "client", "--current", bad / "now" / "placement.csv", "--budget", 0.1, "--json")

    assert trimtab("plan", bad, *given).json["judgement"]["moves"]["units"] <= 20


@pytest.mark.slow
def test_compare_draws_bars_and_two_maps(trimtab, bad, tmp_path):
    plot = tmp_path / "homes.png"

    done = trimtab("compare", bad, "--family", "client", "--plot", plot)

    assert done.code == 0
    assert "client/reloc left out: topics has no column 'spool'" in done.out
    assert "least maximum load" in done.out
    assert plot.stat().st_size > 10_000


def test_compare_by_delay_holds_everybody_against_the_same_bound(trimtab, field):
    answer = trimtab("compare", field, "--family", "client", "--objective", "delay", "--json").json

    delays = {each["policy"]: each["judgement"]["delay"]["mean_ms"] for each in answer["policies"]}
    assert list(delays) == policies("client")
    assert delays["client/trim"] == min(delays.values())
    assert answer["bound"]["figure"] == "delay"
    assert answer["bound"]["value"] <= delays["client/trim"]


def test_plan_by_delay_shows_what_it_depends_on(trimtab, field):
    shown = trimtab("plan", field, "--family", "client", "--objective", "delay").out

    assert "delay, mean" in shown
    assert "storage, most in use" in shown


def test_more_than_storage_can_ever_hold_is_refused_with_how_much(trimtab, tmp_path):
    home = tmp_path / "full"
    trimtab("world", "reloc", "--out", home, "--topics", 8, "--grid", 1, "--storage", 10)

    done = trimtab("plan", home, "--family", "client", "--objective", "delay")

    assert done.code == 2
    assert "too many; raise the brokers' storage" in done.err


def test_a_current_placement_of_another_unit_is_refused(trimtab, folder, bad):
    trimtab("plan", folder, "--policy", "link/gs", "--out", folder)

    done = trimtab("plan", folder, "--family", "client", "--current", folder / "placement.csv")

    assert done.code == 2
    assert "places links, but the question is about clients" in done.err


@pytest.mark.parametrize("form", ["{0}, [{1}, {2}]", "t1, {0}, {1}, {2}"])
def test_lists_come_from_a_file_in_either_form(trimtab, tmp_path, form):
    (tmp_path / "lists.txt").write_text("\n".join(form.format(n, n + 1, n + 2) for n in range(3)) + "\n")

    done = trimtab(
        "world", "reloc", "--out", tmp_path / "w", "--lists", tmp_path / "lists.txt", "--topics", 3, "--json"
    )

    assert (done.json["topics"], done.json["clients"], done.json["links"]) == (3, 5, 18)


def test_a_broken_list_is_named_by_its_line(trimtab, tmp_path):
    (tmp_path / "lists.txt").write_text("1, [2, 3]\n2, [3, 4\n")

    done = trimtab("world", "reloc", "--out", tmp_path / "w", "--lists", tmp_path / "lists.txt", "--topics", 2)

    assert done.code == 2
    assert "lists.txt, line 2:" in done.err
    assert not (tmp_path / "w").exists()


def test_real_sites_and_people_come_from_files(trimtab, tmp_path):
    (tmp_path / "sites.csv").write_text("SITE_ID,LATITUDE,LONGITUDE\n1,-37.81,144.97\n2,-37.82,144.95\n")
    (tmp_path / "users.csv").write_text("Latitude,Longitude\n" + "".join(f"-37.8{n},144.9{n}\n" for n in range(9)))
    given = ("--sites", tmp_path / "sites.csv", "--users", tmp_path / "users.csv", "--topics", 4, "--sigma", 1)

    made = trimtab("world", "reloc", "--out", tmp_path / "w", *given, "--json")
    answer = trimtab("plan", tmp_path / "w", "--family", "client", "--objective", "delay", "--json")

    assert made.json["brokers"] == 2
    assert 0.0 < answer.json["judgement"]["delay"]["mean_ms"] < 10.0


def test_sites_without_people_are_refused(trimtab, tmp_path):
    done = trimtab("world", "reloc", "--out", tmp_path / "w", "--sites", tmp_path / "sites.csv")

    assert done.code == 2
    assert "--sites and --users belong together" in done.err
