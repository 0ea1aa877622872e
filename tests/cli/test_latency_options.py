"""The options --model and --profile: which machine a placement of topics is predicted for, and simulated on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import trimtab as package
from trimtab.errors import BadInput
from trimtab.model.hardware import PAPER, PROFILES, Hardware
from trimtab.predict.card import Card
from trimtab.predict.configurations import simulated_samples
from trimtab.predict.poly4 import Poly4
from trimtab.predict.queueing import Queueing
from trimtab.predict.store import read_hardware, read_model, write_model
from trimtab.predict.trim import TrimModel

SLOW = PROFILES["two-slow-cores"]
MEASURED = replace(SLOW, name="lab", network_ms=3.0)


@pytest.fixture
def request_folder(trimtab, tmp_path):
    folder = tmp_path / "request"
    assert trimtab("world", "colocation", "--kind", "u5", "--topics", 10, "--seed", 3, "--out", folder).code == 0
    return folder


@pytest.fixture
def models(tmp_path):
    """A folder of ``trimtab profile``, a trained model for three topics, and one for a topic alone."""
    profile = tmp_path / "lab-machine"
    profile.mkdir()
    (profile / "model.json").write_text(json.dumps(Queueing(MEASURED).as_json()))
    (profile / "profile.json").write_text(json.dumps(MEASURED.as_json()))
    card = Card("trim", "lab", 3, {}, 0, "nothing")
    write_model(TrimModel(Queueing(MEASURED), None, 3), card, tmp_path / "models" / "trim")
    samples = simulated_samples(MEASURED, 1, 40, 1, 20.0)
    write_model(Poly4().fit(samples), replace(card, predictor="poly4", most=1), tmp_path / "models" / "poly4")
    return {"profile": profile, "trim": tmp_path / "models" / "trim", "poly4": tmp_path / "models" / "poly4"}


def test_plan_judge_and_compare_use_the_measured_machine(trimtab, request_folder, models, tmp_path):
    out = tmp_path / "plan"
    answers = {
        name: trimtab("plan", request_folder, "--policy", "topic/trim", "--json", *options).json
        for name, options in {
            "paper": (), "model": ("--model", models["profile"], "--out", out),
            "file": ("--model", models["profile"] / "model.json"),
            "hardware": ("--profile", models["profile"] / "profile.json"),
        }.items()
    }  # fmt: skip

    assert [answers[name]["hardware"] for name in ("paper", "model", "file", "hardware")] == [
        "xeon-e5420",
        *["lab"] * 3,
    ]
    assert answers["model"]["judgement"] == answers["file"]["judgement"] == answers["hardware"]["judgement"]
    assert answers["model"]["judgement"]["brokers_used"] > answers["paper"]["judgement"]["brokers_used"]
    placement = out / "placement.csv"
    judged = trimtab("judge", request_folder, placement, "--model", models["profile"], "--json").json
    assert judged["judgement"]["latency"] == answers["model"]["judgement"]["latency"]
    assert (judged["hardware"], judged["hardware_from"]) == ("lab", f"--model {models['profile']}")
    compared = trimtab("compare", request_folder, "--family", "topic", "--policies", "ffd,trim,hash", "--json",
                       "--model", models["profile"]).json  # fmt: skip
    assert compared["hardware"] == "lab"
    assert compared["policies"][1]["judgement"]["latency"] == answers["model"]["judgement"]["latency"]


def test_people_are_told_the_hardware_and_the_model(trimtab, request_folder, models):
    named = trimtab("plan", request_folder, "--policy", "topic/ffd", "--set", "k=3", "--model", models["trim"]).out
    default = trimtab("plan", request_folder, "--policy", "topic/ffd").out

    assert "lab, 2 cores (--model " in named
    assert "latency model" in named
    assert "--model or --profile names yours" not in named
    assert "xeon-e5420, 4 cores (the default)" in default
    assert "latencies are those of the paper's machine, 'xeon-e5420'; --model or --profile names yours" in default


def test_the_configured_model_is_the_default_of_every_command(trimtab, request_folder, models, tmp_path, monkeypatch):
    config = tmp_path / "trimtab.toml"
    config.write_text('[control]\nmodel = "lab-machine"\n')
    monkeypatch.setenv("TRIMTAB_CONFIG", str(config))
    out = tmp_path / "plan"

    planned = trimtab("plan", request_folder, "--policy", "topic/ffd", "--out", out, "--json").json
    judged = trimtab("judge", request_folder, out / "placement.csv", "--json").json
    sized = trimtab("rightsize", request_folder, "--json").json
    other = trimtab("plan", request_folder, "--policy", "topic/ffd", "--profile", "plain", "--json").json

    assert planned["hardware"] == judged["hardware"] == sized["hardware"] == "lab"
    assert planned["model_from"] == sized["model_from"] == "[control] model of trimtab.toml"
    assert other["hardware"] == "plain"


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("trim", (), "holds a model for at most 3 topics on a broker, but 6 were asked for: train one with --k 6, or "
                     "ask for 3 (--set k=3)"),
        ("poly4", ("--set", "k=2"), "holds a model for at most 1 topics on a broker, but 2 were asked for"),
        ("trim", ("--set", "k=3", "--profile", "plain"),
         "holds a model for hardware 'lab', but the hardware is 'plain': measure 20 to 50 sets"),
    ],
)  # fmt: skip
def test_a_model_of_other_hardware_or_fewer_topics_is_refused(
    trimtab, request_folder, models, tmp_path, model, options, sentence
):
    out = tmp_path / "out"

    done = trimtab("plan", request_folder, "--policy", "topic/ffd", "--model", models[model], "--out", out, *options)

    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err
    assert not out.exists()


def test_a_configured_model_for_fewer_topics_is_refused_with_the_setting(
    trimtab, request_folder, models, tmp_path, monkeypatch
):
    config = tmp_path / "trimtab.toml"
    config.write_text('[control]\nmodel = "models/trim"\n')
    monkeypatch.setenv("TRIMTAB_CONFIG", str(config))

    done = trimtab("plan", request_folder, "--policy", "topic/ffd")

    assert done.code == 2
    assert "[control] model of trimtab.toml: " in done.err
    assert "at most 3 topics on a broker, but 6 were asked for" in done.err


def test_a_question_without_latencies_takes_no_model(trimtab, folder, tmp_path):
    trimtab("plan", folder, "--policy", "link/gs", "--out", tmp_path)

    for command in (("plan", folder, "--policy", "link/gs"), ("judge", folder, tmp_path / "placement.csv")):
        done = trimtab(*command, "--profile", "plain")
        assert done.code == 2
        assert "--profile is about the latencies of topics that share a broker; " in done.err


def test_a_folder_of_models_says_which_one_to_name(trimtab, request_folder, models):
    done = trimtab("plan", request_folder, "--policy", "topic/ffd", "--model", models["trim"].parent)

    assert done.code == 2
    assert "it holds the models poly4, trim: name one of them, such as " in done.err


def test_a_policy_refuses_a_model_of_other_hardware_than_the_brokers(request_folder):
    workload = package.read_workload(request_folder)
    policy = package.policy("topic/ffd", model=Queueing(SLOW))

    with pytest.raises(
        BadInput, match=r"hardware 'two-slow-cores' \(2 cores\), but the brokers' hardware is 'xeon-e5420'"
    ):
        policy.place(package.Problem(workload, "topic"))
    assert (policy.place(package.Problem(workload, "topic", hardware=SLOW)).broker >= 0).all()


def test_brokers_with_their_own_cores_are_kinds_of_the_hardware(request_folder):
    workload = package.read_workload(request_folder)
    brokers = replace(workload.brokers, cores=np.full(len(workload.brokers), 3.0))
    problem = package.Problem(replace(workload, brokers=brokers), "topic")

    fitted = Queueing(replace(PAPER, contention=0.1, cores=2))  # of the same machine, with fewer cores

    assert (package.policy("topic/ffd", model=fitted).place(problem).broker >= 0).any()


def test_models_and_hardware_are_part_of_the_python_interface(models):
    model = package.read_model(models["profile"], hardware="lab", topics=6)

    assert model.hardware == MEASURED
    assert package.Hardware is Hardware
    assert read_model(models["profile"] / "profile.json").hardware == MEASURED
    assert read_hardware(str(models["profile"])) == read_hardware(str(models["trim"] / "model.json")) == MEASURED
    assert read_hardware("plain") == PROFILES["plain"]


def test_a_placement_that_the_simulation_refutes_is_a_no(trimtab, request_folder, models, tmp_path):
    """A placement for the paper's four cores is carried by two slow ones."""
    trimtab("plan", request_folder, "--policy", "topic/ffd", "--out", tmp_path)

    kept = trimtab("judge", request_folder, tmp_path / "placement.csv")
    late = trimtab("judge", request_folder, tmp_path / "placement.csv", "--profile", "two-slow-cores")

    assert kept.code == 0
    assert late.code == 1
    assert "topics out of bound in the simulation" in late.out
    assert "out of bound in the simulation" not in kept.out


def test_plan_says_no_if_its_model_was_too_hopeful(trimtab, request_folder, tmp_path):
    hopeful = replace(SLOW, service=tuple((nominal, 0.5 * real) for nominal, real in SLOW.service))
    model = tmp_path / "hopeful.json"
    model.write_text(json.dumps(Queueing(hopeful).as_json()))

    arguments = ("plan", request_folder, "--policy", "topic/trim", "--model", model, "--profile", "two-slow-cores")
    told, answer = trimtab(*arguments), trimtab(*arguments, "--json")

    assert told.code == answer.code == 1
    assert answer.json["judgement"]["latency"]["topics_out_of_bound"] > 0
    assert "out of bound in the simulation" in told.out
    if answer.json["bound"]["proven_optimal"]:
        assert "proven optimal by prediction, but not every bound is kept in the simulation" in told.out
