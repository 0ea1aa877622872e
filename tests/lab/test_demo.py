"""The main job, as somebody new would run it: a fleet, Spark, a controller, a broker that is killed; and its table."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(400)
def test_the_short_demo_trims_and_loses_nothing(tmp_path, nats_server, java):
    words = [sys.executable, "-m", "trimtab.cli.main", "demo", "--fast", "--json", "--out", str(tmp_path / "demo")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["before"]["spread"] > 0.5
    assert said["after"]["spread"] < said["before"]["spread"] / 2
    assert said["migrations"] > 10
    assert said["notifications"]["delivered"] > 500
    assert said["notifications"]["lost"] == 0
    assert said["notifications"]["doubled"] == 0
    assert said["served_again_s"] is not None
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000
    assert "leads" in (tmp_path / "demo" / "controller.log").read_text()
