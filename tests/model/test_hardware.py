"""Hardware profiles: what they refuse, and the speeds and CPU times that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.model.hardware import PAPER, PROFILES, Hardware, hardware


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_is_the_same_after_it_was_stored(profile):
    assert Hardware.from_json(profile.as_json()) == profile


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_more_topics_in_processing_never_make_each_faster(profile):
    speed = profile.speeds(20)

    assert speed[0] == speed[1] == 1.0
    assert (np.diff(speed) <= 0.0).all()


def test_cores_are_shared_when_there_are_more_topics():
    assert Hardware("two", cores=2).speeds(4).tolist() == [1.0, 1.0, 1.0, 2 / 3, 0.5]
    assert Hardware("busy", cores=2, background=1.0).speeds(2).tolist() == [1.0, 1.0, 0.5]
    assert Hardware("siblings", cores=1, sibling=0.5).speeds(2).tolist() == [1.0, 1.0, 0.75]


def test_cpu_times_go_on_beyond_the_calibrated_points():
    profile = Hardware("line", service=((0.0, 1.0), (10.0, 11.0), (20.0, 31.0)))

    assert profile.service_ms(np.array([0.0, 5.0, 10.0, 15.0, 30.0])).tolist() == [1.0, 6.0, 11.0, 21.0, 51.0]


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        ({"cores": 0}, BadKnob, "cores"),
        ({"contention": -0.1}, BadKnob, "contention"),
        ({"message_cv": float("nan")}, BadKnob, "message_cv"),
        ({"background": 4.0}, BadKnob, "less than the 4 cores"),
        ({"service": ((0.0, 1.0),)}, BadInput, "two or more pairs"),
        ({"service": ((0.0, 2.0), (1.0, 1.0))}, BadInput, "must rise"),
        ({"service": ((0.0, 1.0), (1.0, float("nan")))}, BadInput, "must rise"),
        ({"service": ((0.0, 1.0), (float("nan"), 2.0))}, BadInput, "must rise"),
        ({"cores": float("nan")}, BadKnob, "cores"),
        ({"cores": "two"}, BadKnob, "cores"),
        ({"cores": True}, BadKnob, "cores"),
        ({"poisson": 1.0}, BadKnob, "poisson must be true or false"),
        ({"processing": "guessed"}, BadKnob, "processing must be nominal or measured"),
    ],
)
def test_impossible_hardware_is_refused(fields, error, sentence):
    with pytest.raises(error, match=sentence):
        Hardware("wrong", **fields)


def test_profiles_of_other_versions_and_unknown_names_are_refused():
    with pytest.raises(BadInput, match="of version 9, but must be of version 1: measure it again"):
        Hardware.from_json(PAPER.as_json() | {"version": 9})
    with pytest.raises(UnknownName, match="field of a hardware profile"):
        Hardware.from_json(PAPER.as_json() | {"turbo": True})
    with pytest.raises(UnknownName, match="hardware profile"):
        hardware("xeon")


def test_other_processes_leave_fewer_cores_the_more_messages_pass():
    profile = Hardware("shared", cores=2, background=0.5, overhead_ms=2.0)

    assert profile.speeds(2, 250.0).tolist() == [1.0, 1.0, 0.5]
    assert profile.speeds(2, np.array([0.0, 250.0])).tolist() == [[1.0, 1.0, 0.75], [1.0, 1.0, 0.5]]
    assert profile.elsewhere(1e6) == pytest.approx(1.9)  # a twentieth of the cores is left


def test_a_fraction_of_a_core_is_a_fraction_of_the_speed():
    half = PAPER.scaled(cores=0.5)

    assert half.cores == 0.5
    assert half.speeds(2)[1] == 0.5
    assert half.speeds(2)[2] < 0.25
    assert PAPER.scaled(cores=1.5).speeds(1)[1] == 1.0
    assert PAPER.scaled(cores=1.5).speeds(2)[2] < 0.75
    assert Hardware("shared", cores=2, background=0.6).scaled(cores=0.5).background < 0.5


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_more_cores_never_make_topics_slower(profile):
    """Beyond one core: below, contention does not change, as there is no neighbour on another core."""
    cores = np.arange(0.25, 1.01, 0.25)
    speeds = np.array([replace(profile, cores=number).speeds(6) for number in cores])

    assert (np.diff(speeds, axis=0) >= 0.0).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"service": None}, "service of a hardware profile must be pairs of numbers"),
        ({"service": [[0.0, 1.0], ["a", 2.0]]}, "service of a hardware profile must be pairs of numbers"),
        ({"service": [[0.0, 1.0], [1.0]]}, "service of a hardware profile must be pairs of numbers"),
        ({"network_ms": "fast"}, "network_ms must be a number"),
        ({"name": 7}, "name must be text"),
    ],
)
def test_damaged_profiles_are_refused_in_a_sentence(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        Hardware.from_json(PAPER.as_json() | change)


def test_a_profile_without_its_main_fields_says_which():
    values = {name: value for name, value in PAPER.as_json().items() if name not in ("service", "cores")}

    with pytest.raises(BadInput, match="this hardware profile has no cores, service"):
        Hardware.from_json(values)
