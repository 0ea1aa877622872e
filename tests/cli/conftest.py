"""Run commands in this process, as the shell would see them."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from trimtab.cli.main import main


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def trimtab(capsys):
    def run(*arguments) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Done(ended.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def folder(trimtab, tmp_path):
    """The paper's instance, small."""
    home = tmp_path / "workload"
    options = (
        "--publishers",
        30,
        "--subscribers",
        30,
        "--machines",
        5,
        "--bandwidth",
        200,
        "--rates",
        "low",
        "--seed",
        4,
    )
    assert trimtab("world", "maxdata", "--out", home, *options).code == 0
    return home
