"""The experiment on coordinates answers for any matrix, and refuses what it cannot use in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from trimtab.cli.main import trimtab
from trimtab.errors import BadInput
from trimtab.lab.experiments import coordinates
from trimtab.lab.run import run
from trimtab.observe.coordinates.truth import clusters


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(coordinates, "ROUNDS", 60)
    monkeypatch.setattr(coordinates, "STAR_ROUNDS", 60)
    monkeypatch.setattr(coordinates, "STAR_NODES", (4, 16))
    monkeypatch.setattr(coordinates, "CPU_UPDATES", 50)
    monkeypatch.setattr(coordinates, "NETWORK_NODES", 40)


@pytest.fixture
def matrix(tmp_path):
    path = tmp_path / "matrix.txt"
    np.savetxt(path, clusters(30, 2) / 1000.0)
    return path


@pytest.mark.usefixtures("quickly")
def test_a_matrix_gives_one_table_with_held_out_errors(tmp_path, matrix):
    words = ["lab", "run", "coordinates", "--matrix", str(matrix), "--unit", "s", "--peers", "6", "--seeds", "1"]

    done = CliRunner().invoke(trimtab, [*words, "--workers", "1", "--out", str(tmp_path / "out"), "--json"])

    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["nodes"], answer["peers"], answer["skipped"]) == (30, 6, 0)
    for model in ("serf", "robust"):
        assert 0.0 < answer[model]["median"] < answer[model]["p90"] < 3.0
    assert set(answer["liars"]) == set(coordinates.LIES)
    assert answer["robust"]["probed_median"] < 0.01  # a measured pair overrides
    assert {path.split("/")[-1] for path in answer["files"]} == {
        "report.md", "rows.parquet", "figure-3.png", "networks.png",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_without_a_matrix_the_made_up_networks_are_tried(tmp_path):
    done = run("coordinates", 1, tmp_path, 1, lambda *_: None, peers=8)

    assert [network["network"] for network in done.figures["networks"]] == list(coordinates.TRUTHS)
    assert len(done.figures["star"]) == 6  # two sizes, and four more round-trip times for 16 nodes
    assert "| cities | 40 |" in (tmp_path / "report.md").read_text()


def test_a_matrix_that_leaves_no_pair_out_is_refused(tmp_path, matrix):
    with pytest.raises(BadInput, match=r"with 40 peers, every pair of its 30 nodes is probed, .* fewer --peers"):
        run("coordinates", 1, tmp_path / "out", 1, lambda *_: None, matrix=(str(matrix),), unit="s", peers=40)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "cannot be read: No such file"), ("0 1 2\n1 0\n", "is not square"), ("0 1\n1 0\n", "has 2 nodes")],
)
def test_bad_matrices_exit_with_2(tmp_path, monkeypatch, capsys, text, sentence):
    from trimtab.cli.main import main

    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "m").write_text(text)

    with pytest.raises(SystemExit) as end:
        main(["lab", "run", "coordinates", "--matrix", "m", "--json"])

    assert end.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out" / "lab" / "coordinates" / "report.md").exists()


def test_a_file_with_other_contents_is_another_job(matrix):
    before = coordinates.NetworkCoordinates().jobs(1, (str(matrix),), "s", 6)
    matrix.write_text(matrix.read_text().replace("1", "2"))

    after = coordinates.NetworkCoordinates().jobs(1, (str(matrix),), "s", 6)

    assert [job for job in before if job["part"] == "matrix"] != [job for job in after if job["part"] == "matrix"]
