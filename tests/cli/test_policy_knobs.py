"""``trimtab policies``, and ``--set`` on plan and compare."""

from __future__ import annotations

import pytest

from trimtab.place.knobs import knobs, shown
from trimtab.place.registry import about, policies


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    from trimtab.lab.worlds.bad import Bad
    from trimtab.model.folder import write_workload

    home = tmp_path_factory.mktemp("bad")
    write_workload(Bad(brokers=4, subscribers=200, backend=60, fewest=2, most=6).make(0), home)
    return home


def words(text):
    """What a table says, without its lines and line breaks."""
    return " ".join(text.translate({ord(line): " " for line in "│┃┏┓┗┛━┳┻╇┡┩┴└┘─"}).split())


# policies


def test_policies_are_listed_with_their_knobs_and_defaults(trimtab):
    done = trimtab("policies")

    assert done.code == 0
    for name in policies():
        assert f"│ {name} " in done.out
        for knob in knobs(name):
            assert f"{knob.name}={shown(knob.default)}" in done.out
    assert "Moves the heaviest client" in done.out


@pytest.mark.parametrize("family", ["link", "client"])
def test_policies_of_one_family(trimtab, family):
    answer = trimtab("policies", "--family", family, "--json").json

    assert [each["policy"] for each in answer] == policies(family)
    assert {each["unit"] for each in answer} == {family}
    assert f"{'link' if family == 'client' else 'client'}/" not in trimtab("policies", "--family", family).out


def test_the_json_of_policies_has_everything_about_a_knob(trimtab):
    (ldm,) = (each for each in trimtab("policies", "--json").json if each["policy"] == "client/ldm")

    assert ldm["about"] == about("client/ldm")[0]
    assert ldm["knobs"][0] == {
        "name": "alpha", "type": "number", "default": 0.15, "optional": False, "least": 0.0, "most": None,
        "choices": [], "about": "coefficient of variation of broker loads above which clients move",
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [("client/multistage",), ("multistage", "--family", "client")])
def test_one_policy_is_shown_with_the_meaning_and_range_of_its_knobs(trimtab, arguments):
    done = trimtab("policies", *arguments)

    assert done.code == 0
    assert done.out.startswith(f"client/multistage: {about('client/multistage')[0]}\n")
    for knob in knobs("client/multistage"):
        assert knob.about in words(done.out)
        assert knob.range in words(done.out)


@pytest.mark.parametrize("name", policies())
def test_every_policy_can_be_shown(trimtab, name):
    assert about(name)[0] in trimtab("policies", name).out
    assert trimtab("policies", name, "--json").json["policy"] == name


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("client/ldn",), "there is no policy 'client/ldn'; did you mean 'client/ldm'?"),
        (("ldm",), "policy 'ldm' needs its family"),
        (("client/ldm", "--family", "link"), "policy 'client/ldm' is not of family 'link'"),
        (("--family", "lonk"), "there is no family 'lonk'; did you mean 'link'?"),
    ],
)
def test_policies_refuses(trimtab, arguments, sentence):
    done = trimtab("policies", *arguments)

    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


# --set on plan


def test_plan_uses_the_knobs_and_names_them(trimtab, bad):
    plain = trimtab("plan", bad, "--policy", "client/ldm", "--json").json
    tight = trimtab("plan", bad, "--policy", "client/ldm", "--set", "alpha=0.02", "--set", "beta=1", "--json").json

    assert plain["knobs"] == {}
    assert tight["knobs"] == {"alpha": 0.02, "beta": 1.0}
    assert 0.02 < plain["judgement"]["load"]["cov"] <= 0.15
    assert tight["judgement"]["load"]["cov"] <= 0.02


def test_plan_shows_the_knobs_to_people(trimtab, bad):
    arguments = ("plan", bad, "--policy", "client/multistage", "--set", "scheme=sdm", "--set", "gamma=9")

    assert "knobs set scheme=sdm, gamma=9.0" in words(trimtab(*arguments).out)
    assert "knobs set" not in trimtab("plan", bad, "--policy", "client/gsh").out


def test_a_seed_may_be_set_either_way(trimtab, bad):
    option = trimtab("plan", bad, "--policy", "client/random", "--seed", 5, "--json").json
    knob = trimtab("plan", bad, "--policy", "client/random", "--set", "seed=5", "--json").json

    assert option["judgement"] == knob["judgement"]
    assert (option["seed"], knob["seed"]) == (5, 5)
    assert option["knobs"] == knob["knobs"] == {"seed": 5}


def test_a_budget_may_be_set_either_way(trimtab, bad, tmp_path):
    trimtab("plan", bad, "--policy", "client/nearest", "--out", tmp_path)
    given = ("plan", bad, "--policy", "client/trim", "--current", tmp_path / "placement.csv", "--json")

    knob, option = trimtab(*given, "--set", "budget=0.1").json, trimtab(*given, "--budget", 0.1).json

    assert knob["knobs"] == {"budget": 0.1}
    assert knob["judgement"] == option["judgement"]


def test_a_knob_of_links(trimtab, folder):
    answer = trimtab("plan", folder, "--policy", "link/trim", "--set", "effort=0", "--json").json

    assert answer["knobs"] == {"effort": 0.0}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--policy", "client/ldm", "--set", "alpah=1"),
            "trimtab: there is no knob of client/ldm 'alpah'; did you mean 'alpha'? known: alpha, beta, initial, seed",
        ),
        (
            ("--policy", "client/gsh", "--set", "alpha=1"),
            "trimtab: there is no knob of client/gsh 'alpha'; known: none",
        ),
        (
            ("--policy", "client/ldm", "--set", "alpha=much"),
            "trimtab: client/ldm: alpha must be a number, 0 or more, but is 'much'",
        ),
        (
            ("--policy", "client/ldm", "--set", "alpha=-1"),
            "trimtab: client/ldm: alpha must be a number, 0 or more, but is -1.0",
        ),
        (
            ("--policy", "client/ldm", "--set", "alpha=1", "--set", "alpha=1"),
            "trimtab: knob alpha of client/ldm is set twice; set it once",
        ),
        (
            ("--policy", "client/ldm", "--seed", 1, "--set", "seed=1"),
            "trimtab: knob seed is set twice: by --seed and by --set seed=1",
        ),
        (
            ("--policy", "client/trim", "--objective", "load", "--set", "client/trim.objective=delay"),
            "trimtab: knob objective is set twice: by --objective and by --set client/trim.objective=delay",
        ),
        (("--policy", "client/ldm", "--set", "alpha"), "trimtab: 'alpha' must have the form KNOB=VALUE"),
        (
            ("--policy", "client/trim", "--set", "budget=0.5"),
            "trimtab: budget says how many clients may move; where they are now is missing: --current PLACEMENT",
        ),
        (
            ("--policy", "client/ldm", "--set", "client/sdm.alpha=1"),
            "trimtab: --set client/sdm.alpha=1: client/sdm is not among the policies: client/ldm",
        ),
    ],
)
def test_plan_refuses_knobs_and_writes_nothing(trimtab, bad, tmp_path, arguments, sentence):
    done = trimtab("plan", bad, *arguments, "--out", tmp_path / "out")

    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith(sentence)
    assert not (tmp_path / "out").exists()


# --set on compare


def compared(trimtab, bad, *arguments):
    answer = trimtab("compare", bad, "--family", "client", *arguments, "--json").json
    return {each["policy"]: each for each in answer["policies"]}


def test_compare_gives_a_knob_to_every_policy_that_has_it(trimtab, bad):
    found = compared(trimtab, bad, "--policies", "ldm,sdm,gsh", "--set", "alpha=0.05")

    assert {name: each["knobs"] for name, each in found.items()} == {
        "client/ldm": {"alpha": 0.05}, "client/sdm": {"alpha": 0.05}, "client/gsh": {},
    }  # fmt: skip
    assert found["client/ldm"]["judgement"]["load"]["cov"] <= 0.05


def test_compare_gives_a_knob_to_one_policy_which_goes_before_that_of_all(trimtab, bad):
    found = compared(
        trimtab, bad, "--policies", "ldm,sdm", "--set", "alpha=0.05", "--set", "client/ldm.alpha=0.1",
        "--set", "sdm.ceiling=1.2",
    )  # fmt: skip

    assert found["client/ldm"]["knobs"] == {"alpha": 0.1}
    assert found["client/sdm"]["knobs"] == {"alpha": 0.05, "ceiling": 1.2}
    assert 0.05 < found["client/ldm"]["judgement"]["load"]["cov"] <= 0.1


def test_compare_shows_the_knobs_to_people(trimtab, bad):
    done = trimtab("compare", bad, "--family", "client", "--policies", "ldm,gsh", "--set", "alpha=0.05")

    assert done.code == 0
    assert "client/ldm with alpha=0.05\n" in done.out
    assert "client/gsh with" not in done.out


def test_an_objective_that_is_set_is_that_of_the_whole_comparison(trimtab, tmp_path):
    trimtab("world", "reloc", "--out", tmp_path, "--topics", 6, "--grid", 2)
    given = ("--family", "client", "--policies", "nearest,trim", "--json")

    knob = trimtab("compare", tmp_path, *given, "--set", "objective=delay").json
    option = trimtab("compare", tmp_path, *given, "--objective", "delay").json

    assert knob["bound"] == option["bound"]
    assert knob["bound"]["figure"] == "delay"


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("gamma=1", "there is no knob of these policies 'gamma'; known: alpha, beta, initial, seed, objective"),
        ("alpah=1", "there is no knob of these policies 'alpah'; did you mean 'alpha'?"),
        ("alpha=-1", "client/ldm: alpha must be a number, 0 or more, but is -1.0"),
        ("client/trim.alpha=1", "there is no knob of client/trim 'alpha'; known: objective, budget"),
        (
            "client/sdm.alpha=1",
            "--set client/sdm.alpha=1: client/sdm is not among the policies: client/ldm, client/trim",
        ),
        ("link/trim.effort=1", "policy 'link/trim' is not of family 'client'"),
        ("client/ldn.alpha=1", "there is no policy 'client/ldn'; did you mean 'client/ldm'?"),
        ("client/trim.objective=delay", "all policies are compared on one objective: --objective delay"),
        ("budget=0.5", "where they are now is missing: --current PLACEMENT"),
        ("=1", "'=1' must have the form KNOB=VALUE"),
    ],
)
def test_compare_refuses_knobs(trimtab, bad, assignment, sentence):
    done = trimtab("compare", bad, "--family", "client", "--policies", "ldm,trim", "--set", assignment)

    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert sentence in done.err
