"""Numbers on the command line: NaN is in no range."""

from __future__ import annotations

import importlib
import math

import click
import pytest

from trimtab.cli.main import COMMANDS
from trimtab.cli.numbers import Number, Numbers


def every_option():
    """The options of all commands, also of those in groups."""

    def walk(name: str, command: click.Command):
        for option in command.params:
            yield name, option
        for inner, child in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {inner}", child)

    for name in COMMANDS:
        module = name.replace("-", "_")
        yield from walk(name, getattr(importlib.import_module(f"trimtab.cli.{module}"), module))


def test_no_option_takes_numbers_that_may_be_nan():
    """A range of click contains NaN, and so does its plain float."""
    wrong = [
        f"{name} {option.name}"
        for name, option in every_option()
        if isinstance(option.type, click.FloatRange | click.types.FloatParamType)
        and not isinstance(option.type, Number)
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("rightsize", "city", "--hours", "nan"), "--hours"),
        (("rightsize", "city", "--day-hours", "NaN"), "--day-hours"),
        (("rightsize", "city", "--hours", "inf"), "--hours"),
        (("profile", "--out", "new", "--seconds", "nan"), "--seconds"),
        (("profile", "--out", "new", "--stop-after", "nan"), "--stop-after"),
        (("profile", "--out", "new", "--tolerate", "nan"), "--tolerate"),
        (("lab", "run", "colocation-live", "--tolerate", "nan"), "--tolerate"),
        (("plan", "city", "--policy", "link/gs", "--time-limit", "nan"), "--time-limit"),
        (("history", "--since", "nan"), "--since"),
        (("world", "maxdata", "--out", "new", "--bandwidth", "nan"), "--bandwidth"),
        (("broker", "--name", "b1", "--position", "nan", "1"), "--position"),
    ],
)
def test_nan_is_refused_by_the_option_that_got_it(trimtab, tmp_path, monkeypatch, arguments, option):
    monkeypatch.chdir(tmp_path)

    done = trimtab(*arguments)

    assert done.code == 2
    assert f"Invalid value for '{option}'" in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_time_may_be_infinite():
    assert Number(min=0.0, infinite=True).convert("inf", None, None) == math.inf
    assert Numbers(Number(min=0.0)).convert("1, 2.5,40", None, None) == (1.0, 2.5, 40.0)
