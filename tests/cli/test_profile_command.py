"""``trimtab profile``: what it prints of finished runs, and what it refuses. The runs are simulated."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest

from trimtab.fleet.site.credentials import CLIENT_FILE, Fleet, write_secret
from trimtab.lab.profile.design import Design
from trimtab.lab.profile.measure import JOURNAL, Journal, Machine
from trimtab.lab.profile.trial import Trial
from trimtab.model.hardware import Hardware
from trimtab.predict.simulator import Hosted, simulate

RUNS = 14


def simulated(run, seconds):
    there, count = run.colocation, len(run.colocation.rate)
    hardware = Hardware("true", cores=Machine.here().cores, service=((0.0, 0.3), (1.0, 1.3)), network_ms=3.0)
    hosted = Hosted.of(np.array(there.rate, float), np.array(there.processing_ms))
    p90 = tuple(simulate(hardware, hosted, seed=run.seed, duration_s=60.0).p90_ms.tolist())
    cpu = tuple((np.array(there.processing_ms) + 0.3).tolist())
    return Trial(0, there, run.seed, seconds, 1.0, p90, p90, p90, (100,) * count, (0,) * count, cpu,
                 there.cores + 0.05, 0.01, 0.01, 0.5)  # fmt: skip


@pytest.fixture
def finished(tmp_path):
    """A folder in which all runs are finished, so that no fleet is started."""
    journal = Journal(tmp_path / "out", Machine.here())
    for run in Design(RUNS, cores=float(Machine.here().cores)).plan():
        journal.add(simulated(run, 12.0))
    return tmp_path / "out"


@pytest.mark.slow
def test_finished_runs_become_a_profile_for_people_and_machines(trimtab, finished):
    shown = trimtab("profile", "--out", finished, "--runs", RUNS)
    values = trimtab("profile", "--out", finished, "--runs", RUNS, "--name", "lab", "--json").json

    assert shown.code == 0
    assert "error, cross-validated" in shown.out
    assert "at server and agent" in shown.out
    assert values["complete"]
    assert values["hardware"]["name"] == "lab"
    assert values["accuracy"]["error"] < 0.2
    assert values["cost"]["processor_ms"] == pytest.approx(0.3)
    assert {"profile.json", "model.json", "samples", "report.md", "profile.png", JOURNAL} <= {
        path.name for path in finished.iterdir()
    }
    assert json.loads((finished / "profile.json").read_text())["name"] == "lab"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--broker", "b1"), "--broker and --cores are about a running fleet: give its folder with --home"),
        (("--cores", "4"), "--broker and --cores are about a running fleet: give its folder with --home"),
        (("--home", "nowhere"), "there is no nowhere/client.json: start a fleet with trimtab up"),
        (("--k", "0"), "Invalid value for '--k'"),
        (("--seconds", "0"), "Invalid value for '--seconds'"),
        (("--runs", "-1"), "Invalid value for '--runs'"),
    ],
)
def test_bad_input_leaves_nothing_behind(trimtab, tmp_path, options, sentence):
    done = trimtab("profile", "--out", tmp_path / "out", *options)

    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out" / JOURNAL).exists()


@pytest.mark.slow
def test_a_fleet_that_does_not_answer_is_one_sentence(trimtab, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    home = tmp_path / "fleet"
    Fleet(f"nats://{address}", address).save(home)
    write_secret(home / CLIENT_FILE, {"brokers": {"b1": [f"nats://{address}"]}, "user": "client", "password": "x"})

    done = trimtab("profile", "--out", tmp_path / "out", "--home", home)

    assert done.code == 2
    assert f"nothing answers at {address}" in done.err
    assert "Traceback" not in done.err


def test_too_few_runs_are_refused(trimtab, tmp_path):
    journal = Journal(tmp_path / "out", Machine.here())
    for run in Design(3, cores=float(Machine.here().cores)).plan():
        journal.add(simulated(run, 12.0))

    done = trimtab("profile", "--out", tmp_path / "out", "--runs", 3)

    assert done.code == 2
    assert "3 measured co-locations are too few to fit a profile" in done.err
    assert not (tmp_path / "out" / "model.json").exists()
