"""Knobs: declared by every policy in one way, set from text and from typed values, refused in one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import workload
from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.lab.worlds.reloc import RelocField
from trimtab.model.placement import Placement
from trimtab.model.problem import Problem
from trimtab.place.judge import judge
from trimtab.place.knobs import TYPES, check, find_knob, knob, knobs, parse, shown, typed
from trimtab.place.registry import POLICIES, about, policy, policy_class

each_policy = pytest.mark.parametrize("name", POLICIES)
each_knob = pytest.mark.parametrize(
    ("name", "own"), [(name, own) for name in POLICIES for own in knobs(name)], ids=lambda v: getattr(v, "name", v)
)
SET_BY_CODE = {"stop", "model", "probe"}  # fields that are no knobs


@dataclass(frozen=True, slots=True)
class Switched:
    """A policy with a kind of knob that no registered policy has."""

    fast: bool = knob(False, "whether to hurry")
    label: str = knob("a", "any text")

    def __post_init__(self) -> None:
        check(self)


@each_policy
def test_every_field_of_a_policy_is_a_documented_knob(name):
    assert {field.name for field in fields(policy_class(name))} - SET_BY_CODE == {own.name for own in knobs(name)}
    for own in knobs(name):
        assert 10 <= len(own.about) <= 90
        assert own.about == own.about.strip()
        assert own.kind in TYPES


@each_policy
def test_a_policy_says_in_one_line_what_it_does_and_where_it_comes_from(name):
    line, _ = about(name)

    assert re.fullmatch(r".{20,}\((after )?(Nguyen|Tanaka|Lambert|Khare|Gupta|trimtab's own).*\)\.", line)


@each_knob
def test_every_knob_can_be_set_from_its_printed_default(name, own):
    values = parse(name, [f"{own.name}={shown(own.default)}"])

    assert values == {own.name: own.default}
    assert type(values[own.name]) is type(own.default)
    assert policy(name, **values) == policy(name)


@each_knob
def test_the_declared_type_is_that_of_the_annotation(name, own):
    annotation = policy_class(name).__dataclass_fields__[own.name].type

    assert annotation == own.kind.__name__ + (" | None" if own.optional else "")


@each_knob
def test_a_value_out_of_range_is_refused_wherever_it_is_set(name, own):
    """By text, by typed value and by the policy itself: the range is declared once."""
    if own.choices:
        wrong = "nothing-of-the-kind"
    elif own.most is not None:
        wrong = own.most * 2 + 1
    else:
        wrong = own.least - 1
    rule = f"{name}: {own.name} must be .*{re.escape(own.range)}.*, but is {wrong!r}"

    with pytest.raises(BadKnob, match=rule):
        parse(name, [f"{own.name}={shown(wrong)}"])
    with pytest.raises(BadKnob, match=rule):
        typed(name, {own.name: wrong})
    with pytest.raises(BadKnob, match=rule):
        policy(name, **{own.name: wrong})


@each_knob
@given(text=st.text(min_size=1).map(str.strip).filter(bool))
def test_any_text_is_read_or_refused_and_what_is_read_can_be_used(name, own, text):
    try:
        values = parse(name, [f"{own.name}={text}"])
    except BadKnob:
        return

    assert typed(name, values) == values
    policy(name, **values)


@given(value=st.floats(min_value=0.0, allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_as_it_was_shown(value):
    assert parse("client/ldm", [f"alpha={shown(value)}"]) == {"alpha": value}


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (
            ["alpah=1"],
            "there is no knob of client/ldm 'alpah'; did you mean 'alpha'? known: alpha, beta, initial, seed",
        ),
        (["stop=1"], "there is no knob of client/ldm 'stop'; known: alpha, beta, initial, seed"),
        (["alpha=much"], "client/ldm: alpha must be a number, 0 or more, but is 'much'"),
        (["alpha=nan"], "client/ldm: alpha must be a finite number, 0 or more, but is nan"),
        (["alpha=none"], "client/ldm: alpha must be a number, 0 or more, but is 'none'"),
        (["seed=1.5"], "client/ldm: seed must be a whole number, 0 or more, but is '1.5'"),
        (["initial=best"], "client/ldm: initial must be one of nearest, round-robin, random, but is 'best'"),
        (["alpha=1", "beta=2", "alpha=1"], "knob alpha of client/ldm is set twice; set it once"),
        (["alpha"], "'alpha' must have the form KNOB=VALUE, for example alpha=0.05"),
        (["alpha="], "'alpha=' must have the form KNOB=VALUE, for example alpha=0.05"),
        (["=1"], "'=1' must have the form KNOB=VALUE, for example alpha=0.05"),
    ],
)
def test_text_that_sets_no_knob_is_refused(assignments, sentence):
    with pytest.raises(BadInput) as caught:
        parse("client/ldm", assignments)

    assert str(caught.value) == sentence


def test_a_policy_without_knobs_says_so():
    with pytest.raises(UnknownName, match="there is no knob of client/gsh 'alpha'; known: none"):
        parse("client/gsh", ["alpha=1"])


def test_an_unknown_policy_is_named():
    with pytest.raises(UnknownName, match="there is no policy 'client/ldn'; did you mean 'client/ldm'"):
        parse("client/ldn", ["alpha=1"])


def test_numbers_of_other_kinds_are_accepted():
    """Whole numbers where a number is asked for, and those of numpy."""
    made = typed("client/trim", {"budget": 1, "effort": np.float64(0.5), "seed": np.int64(3)})

    assert made == {"budget": 1.0, "effort": 0.5, "seed": 3}
    assert [type(value) for value in made.values()] == [float, float, int]


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(BadKnob, match="alpha must be a finite number"):
        typed("client/ldm", {"alpha": 10**400})


def test_switches_are_true_or_false():
    fast, label = (each.metadata["knob"] for each in fields(Switched))
    assert (fast["kind"], label["kind"]) == (bool, str)

    assert Switched(fast=True, label="b").fast
    with pytest.raises(BadKnob, match="Switched: fast must be true or false, but is 1"):
        Switched(fast=1)
    with pytest.raises(BadKnob, match="Switched: label must be text, but is 2"):
        Switched(label=2)


def test_shown_values_are_those_of_the_command_line():
    assert [shown(value) for value in (None, True, 3, 0.0005, "sdm")] == ["none", "true", "3", "0.0005", "sdm"]


# The parameters of Nguyen's algorithms.


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("client/ldm", {"alpha": 0.15, "beta": 0.0, "initial": "nearest"}),
        ("client/sdm", {"alpha": 0.15, "beta": 0.0, "initial": "nearest", "ceiling": 1.0}),
        (
            "client/multistage",
            {"alpha": 0.15, "beta": 0.0, "gamma": 0.4, "theta": 0.0, "scheme": "ldm", "initial": "nearest"},
        ),
    ],
)
def test_the_papers_parameters_are_knobs(name, defaults):
    assert {knob: find_knob(name, knob).default for knob in defaults} == defaults


def skewed():
    """Four brokers' worth of clients; all but a few are at the first of three brokers."""
    load = workload([4, 3, 2, 1], [1e3] * 3, [(k, c) for k in range(4) for c in range(12) if (c + k) % 3])
    return Problem(load, "client", Placement("client", np.array([0] * 9 + [1, 1, 2], np.int32)))


def homes(name, *assignments):
    return policy(name, initial="round-robin", **parse(name, assignments)).place(skewed()).broker.tolist()


def test_a_ceiling_of_nothing_keeps_everybody():
    stay = skewed().current.broker.tolist()

    assert homes("client/sdm", "ceiling=0") == stay
    assert homes("client/sdm") != stay
    assert homes("client/multistage", "scheme=sdm", "ceiling=0", "gamma=99") == stay
    assert homes("client/multistage", "scheme=ldm", "ceiling=0", "gamma=99") != stay


def test_a_high_ceiling_still_ends_and_never_raises_the_maximum():
    problem = skewed()
    before = judge(problem, problem.current).load.max
    placed = policy("client/sdm", initial="round-robin", ceiling=1e6, alpha=0.0).place(problem)

    assert judge(problem, placed).load.max < before


@pytest.mark.parametrize("name", ["client/ldm", "client/sdm", "client/multistage"])
def test_alpha_and_beta_say_when_anything_moves(name):
    stay = skewed().current.broker.tolist()

    assert homes(name, "alpha=0.05") != stay
    assert homes(name, "alpha=99", *(["gamma=99"] if name.endswith("stage") else [])) == stay
    assert homes(name, "beta=1e9", *(["theta=1e9"] if name.endswith("stage") else [])) == stay


def test_gamma_and_theta_say_when_all_clients_are_reassigned():
    shuffled = policy("client/gsh").place(skewed()).broker.tolist()

    assert homes("client/multistage", "gamma=0.01", "alpha=99") == shuffled
    assert homes("client/multistage", "gamma=0.01", "alpha=99", "theta=1e9") == skewed().current.broker.tolist()


def test_relatives_beyond_the_number_of_clients_take_no_memory():
    problem = Problem(RelocField(topics=4, grid=2).make(0), "client")

    most = policy("client/reloc", relatives=problem.units).place(problem)
    assert np.array_equal(policy("client/reloc", relatives=10**15).place(problem).broker, most.broker)
