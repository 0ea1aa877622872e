"""Bad input gets one sentence, exit code 2, no traceback, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.waiting import until_blocking
from trimtab.lab.answer import warm_up


def refused(done) -> str:
    """The sentence, having checked its manners."""
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    lines = done.err.strip().splitlines()
    return lines[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--family", "link", "--policy", "trom"),
            "there is no policy 'link/trom'; did you mean 'link/trim'? known: link/gs",
        ),
        (("--family", "lonk", "--policy", "trim"), "there is no policy 'lonk/trim'"),
        (("--policy", "trim"), "policy 'trim' needs its family: --family one of link, client, topic, or FAMILY/trim"),
        (("--family", "link", "--policy", "client/trim"), "policy 'client/trim' is not of family 'link'"),
        (("--family", "link", "--seed", "-1"), "Invalid value for '--seed': -1 is not in the range x>=0."),
        (("--family", "link", "--seed", "one"), "Invalid value for '--seed': 'one' is not a valid integer range."),
        (("--family", "link", "--time-limit", "-3"), "Invalid value for '--time-limit'"),
        (
            ("--family", "link", "--format", "xml"),
            "Invalid value for '--format': 'xml' is not one of 'csv', 'parquet'.",
        ),
        (("--family", "link", "--unknown"), "No such option"),
    ],
)
def test_plan_refuses(trimtab, folder, tmp_path, arguments, sentence):
    out = tmp_path / "out"

    assert sentence in refused(trimtab("plan", folder, *arguments, "--out", out))
    assert not out.exists()


def test_a_missing_workload_is_named(trimtab, tmp_path):
    out = tmp_path / "out"

    sentence = refused(trimtab("plan", tmp_path / "none", "--family", "link", "--out", out))

    assert sentence.startswith(f"trimtab: {tmp_path / 'none'} does not exist; a workload is a folder")
    assert not out.exists()


def test_a_broken_row_is_named_by_every_command_that_reads(trimtab, folder, tmp_path):
    with (folder / "links.csv").open("a") as links:
        links.write("p999,s1,sub\n")
    broken = f"{folder / 'links.csv'}, row 151 (line 152): topic is 'p999', which topics.csv does not list"

    for command in (
        ("plan", folder, "--family", "link", "--out", tmp_path / "out"),
        ("compare", folder, "--family", "link", "--plot", tmp_path / "out" / "plot.png"),
        ("judge", folder, tmp_path / "placement.csv"),
    ):
        assert broken in refused(trimtab(*command))
    assert not (tmp_path / "out").exists()


def test_a_missing_column_is_asked_for_by_name(trimtab, folder):
    (folder / "brokers.csv").write_text("id,cores\nm0,4\n")

    sentence = refused(trimtab("plan", folder, "--family", "link"))

    assert "brokers has no column 'bandwidth' (data/s; links are placed within every broker's bandwidth)" in sentence


def test_a_placement_that_names_an_unknown_broker(trimtab, folder, tmp_path):
    trimtab("plan", folder, "--family", "link", "--policy", "gs", "--out", tmp_path)
    path = tmp_path / "placement.csv"
    path.write_text(path.read_text().replace(",m1\n", ",m77\n", 1))

    sentence = refused(trimtab("judge", folder, path))

    assert "broker is 'm77', which the workload's brokers do not list" in sentence
    assert "row " in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "there is no world 'nowhere'; known: maxdata, bad, reloc"),
        (("bad", "--most", 5), "bad: most must be from fewest (10) to backend (1000), but is 5"),
        (("bad", "--interest", "none"), "bad: interest must be one of uniform, communities, zipf"),
        (("bad", "--sigma", 5), "world 'bad' has no option --sigma"),
        (("reloc", "--sigma", "-1"), "reloc: sigma must be zero or more, but is -1.0"),
        (("reloc", "--lists", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("maxdata", "--publishers", 0), "maxdata: publishers must be at least 1, but is 0"),
        (("maxdata", "--publishers", 3, "--edges", 4), "maxdata: edges must be at most the 3 publishers, but is 4"),
        (("maxdata", "--rates", "uniform:5:1"), "maxdata: rates must be homogeneous, low, high, or uniform:LOW:HIGH"),
        (("maxdata", "--rates", "fast"), "maxdata: rates must be homogeneous, low, high, or uniform:LOW:HIGH"),
        (("maxdata", "--bandwidth", "-1"), "maxdata: bandwidth must be zero or more, and finite, but is -1.0"),
        (("maxdata", "--bandwidth", "inf"), "maxdata: bandwidth must be zero or more, and finite, but is inf"),
        (("maxdata", "--spread", "1.5"), "maxdata: spread must be in [0, 1), but is 1.5"),
        (("maxdata", "--machines", "many"), "Invalid value for '--machines'"),
    ],
)
def test_world_refuses(trimtab, tmp_path, arguments, sentence):
    out = tmp_path / "out"

    assert sentence in refused(trimtab("world", *arguments, "--out", out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--family", "lonk"), "there is no family 'lonk'; did you mean 'link'?"),
        (("--family", "link", "--policies", "gs,nobody"), "there is no policy 'link/nobody'"),
        (("--family", "link", "--plot", "plot.txt"), "'plot.txt' must end in .png, .svg or .pdf"),
        ((), "Missing option '--family'."),
        (("--family", "link", "--budget", 0.2), "--budget is about homes of clients; family 'link' does not know it"),
        (("--family", "client", "--budget", 0.2), "where they are now is missing: --current PLACEMENT"),
        (("--family", "client", "--budget", -1), "-1 is not a share from 0 to 1"),
        (("--family", "client", "--objective", "delay"), "topics has no column 'spool'"),
        (("--family", "client", "--policies", "nearest"), "clients has no column 'lat'"),
    ],
)
def test_compare_refuses(trimtab, folder, arguments, sentence):
    assert sentence in refused(trimtab("compare", folder, *arguments))


def test_lab_refuses_an_unknown_experiment_and_a_foreign_folder(trimtab, tmp_path):
    out = tmp_path / "out"
    assert "there is no experiment 'maxdata'; did you mean" in refused(trimtab("lab", "run", "maxdata", "--out", out))
    assert not out.exists()
    out.mkdir()
    (out / "journal.jsonl").write_text('{"experiment": "maxdata-grid"}\n')
    sentence = refused(trimtab("lab", "run", "maxdata-tables", "--out", out))
    assert f"{out} holds the results of 'maxdata-grid', not of 'maxdata-tables'; choose another --out" in sentence


def test_a_folder_where_a_file_should_go(trimtab, folder, tmp_path):
    (tmp_path / "blocked").write_text("")

    done = trimtab("plan", folder, "--family", "link", "--policy", "gs", "--out", tmp_path / "blocked" / "deeper")

    assert "cannot be written" in refused(done)


@pytest.mark.parametrize("command", [("world", "maxdata"), ("demo",), ("lab", "run", "maxdata-tables")])
def test_a_place_that_cannot_be_written_to(trimtab, tmp_path, command, java):
    (tmp_path / "file").write_text("")

    assert "cannot be written" in refused(trimtab(*command, "--out", tmp_path / "file" / "x"))


def test_an_unknown_command(trimtab):
    assert "No such command 'fly'" in refused(trimtab("fly"))


@pytest.mark.skipif(os.name != "posix", reason="signals as on posix")
def test_a_reader_that_goes_away_is_not_an_error():
    script = f"{sys.executable} -m trimtab.cli.main lab list --json | head -c 1"

    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True)

    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_ends_at_once_and_leaves_nothing(trimtab, tmp_path, number, code):
    """HiGHS would think for ten minutes; it is interrupted after some CPU time in the middle of it."""
    folder = tmp_path / "workload"
    trimtab("world", "maxdata", "--out", folder, "--rates", "low", "--machines", 20, "--bandwidth", 200)
    command = [sys.executable, "-m", "trimtab.cli.main", "plan", str(folder), "--policy", "link/ilp"]
    command += ["--time-limit", "600", "--out", str(tmp_path / "out")]
    warm_up("link/ilp")  # so that the process loads its kernels and does not compile them for long
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_interrupts) as running:
        try:

            def in_the_middle():
                assert running.poll() is None
                return _cpu_s(running.pid) >= 6.0

            until_blocking(in_the_middle, 60.0)
            running.send_signal(number)
            _, err = running.communicate(timeout=60)
        finally:
            running.kill()

    assert running.returncode == code
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def _hear_interrupts() -> None:
    """A test run in the background of a shell has interrupts ignored, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
