"""``trimtab.toml`` and the environment variables that override it."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from trimtab.config import FILE, Config, load
from trimtab.control.settings import Settings
from trimtab.errors import BadInput
from trimtab.fleet.broker.capacity import Capacity
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.site.credentials import Tls


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder, and an environment that says nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_CONFIG", raising=False)
    monkeypatch.delenv("TRIMTAB_TLS", raising=False)
    return tmp_path


@pytest.fixture
def pems(folder):
    for name in ("ca", "cert", "key"):
        (folder / f"{name}.pem").write_text("PEM")
    return 'ca = "ca.pem"\ncert = "cert.pem"\nkey = "key.pem"\n'


def refusal(folder, text):
    (folder / FILE).write_text(text)
    with pytest.raises(BadInput) as caught:
        load()
    return str(caught.value)


def test_what_a_broker_can_carry_may_be_said(folder):
    (folder / FILE).write_text("[broker]\nbandwidth = 12.5e6\nspeed = 0.5\nposition = [47.07, 15.44]\n")

    capacity = load().broker

    assert capacity == Capacity(bandwidth=12.5e6, speed=0.5, position=(47.07, 15.44))
    assert capacity.about()["cores"] == os.cpu_count()
    assert (capacity.about()["speed"], Capacity().about()["speed"]) == (0.5, 1.0)


def test_the_model_of_coordinates_and_the_interval_of_probes_are_settings(folder):
    (folder / FILE).write_text("[network]\nmodel = 'serf'\nprobe_s = 2\nalone = false\n")

    assert load().network == NetworkSettings("serf", 2, alone=False)


def test_without_a_file_the_defaults_hold():
    assert load() == Config(tls=False)


@pytest.mark.parametrize(
    ("text", "tls"),
    [
        ("", False),
        ("# nothing yet\n", False),
        ("[tls]\n", False),
        ("[tls]\nenabled = true\n", True),
        ("[tls]\nenabled = false\n", False),
    ],
)
def test_tls_is_off_unless_it_is_enabled(folder, text, tls):
    (folder / FILE).write_text(text)

    assert load() == Config(tls=tls)


@pytest.mark.parametrize("head", ["[tls]\n", "[tls]\nenabled = true\n"])
def test_files_of_ones_own_enable_tls(folder, pems, head):
    (folder / FILE).write_text(head + pems)

    expected = Tls(*(str(folder / f"{name}.pem") for name in ("ca", "cert", "key")))
    assert load() == Config(tls=expected)


def test_files_of_ones_own_are_not_looked_at_while_tls_is_off(folder):
    (folder / FILE).write_text('[tls]\nenabled = false\nca = "nowhere.pem"\n')

    assert load() == Config(tls=False)


@pytest.mark.parametrize(
    ("said", "text", "tls"), [("1", "", True), ("1", "enabled = false", True), ("0", "enabled = true", False)]
)
def test_the_environment_has_the_last_word_on_tls(folder, monkeypatch, said, text, tls):
    (folder / FILE).write_text(f"[tls]\n{text}\n")
    monkeypatch.setenv("TRIMTAB_TLS", said)

    assert load() == Config(tls=tls)


def test_the_environment_enables_tls_with_the_files_that_are_configured(folder, pems, monkeypatch):
    (folder / FILE).write_text("[tls]\nenabled = false\n" + pems)
    monkeypatch.setenv("TRIMTAB_TLS", "1")

    assert load() == Config(tls=Tls(*(str(folder / f"{name}.pem") for name in ("ca", "cert", "key"))))


def test_the_environment_enables_tls_without_a_file(monkeypatch):
    monkeypatch.setenv("TRIMTAB_TLS", "1")

    assert load() == Config(tls=True)


@pytest.mark.parametrize("said", ["", "yes", "true", "2", " 1"])
def test_the_environment_says_0_or_1(monkeypatch, said):
    monkeypatch.setenv("TRIMTAB_TLS", said)

    with pytest.raises(BadInput) as caught:
        load()

    assert str(caught.value) == f"TRIMTAB_TLS={said!r} must be 0 or 1"


def test_the_environment_names_another_file(folder, monkeypatch):
    (folder / FILE).write_text("[tls]\nenabled = false\n")
    (folder / "other.toml").write_text("[tls]\nenabled = true\n")
    monkeypatch.setenv("TRIMTAB_CONFIG", str(folder / "other.toml"))

    assert load() == Config(tls=True)


def test_a_file_that_was_named_must_be_there(folder, monkeypatch):
    (folder / FILE).write_text("[tls]\nenabled = true\n")
    monkeypatch.setenv("TRIMTAB_CONFIG", "nowhere.toml")

    with pytest.raises(BadInput) as caught:
        load()

    assert str(caught.value) == "there is no nowhere.toml, which TRIMTAB_CONFIG names"


def test_a_file_that_cannot_be_read_is_refused(folder):
    (folder / FILE).mkdir()

    with pytest.raises(BadInput, match=r"trimtab\.toml: .*Is a directory"):
        load()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[place]\nheadroom = 1\n",
            "trimtab.toml: there is no table [place]; known: [tls], [spark], [hub], [broker], [network], [control]",
        ),
        (
            "tls = true\n",
            "trimtab.toml: there is no table [tls]; known: [tls], [spark], [hub], [broker], [network], [control]",
        ),
        (
            "[[tls]]\nenabled = true\n",
            "trimtab.toml: there is no table [tls]; known: [tls], [spark], [hub], [broker], [network], [control]",
        ),
        ("[tls]\nenable = true\n", "trimtab.toml: [tls] has no key 'enable'; known: enabled, ca, cert, key"),
        ("[tls]\nenabled = 1\n", "trimtab.toml: [tls] enabled = 1 must be true or false"),
        ('[tls]\nenabled = "yes"\n', "trimtab.toml: [tls] enabled = 'yes' must be true or false"),
        (
            '[tls]\nca = "ca.pem"\nkey = "key.pem"\n',
            "trimtab.toml: [tls] needs ca, cert and key together, or none of them; it has ca, key",
        ),
        (
            '[tls]\nca = "ca.pem"\ncert = "cert.pem"\nkey = "nowhere.pem"\n',
            "trimtab.toml: [tls] key = 'nowhere.pem' is not a file",
        ),
        ('[tls]\nca = "."\ncert = "cert.pem"\nkey = "key.pem"\n', "trimtab.toml: [tls] ca = '.' is not a file"),
        ("[hub]\nforget_s = '1d'\n", "trimtab.toml: [hub] forget_s = '1d' must be a number of seconds"),
        ("[hub]\nforget_unnamed_s = 1\n", "hub: forget_unnamed_s must be from five seconds to ten years, but is 1"),
        ("[broker]\ncores = true\n", "trimtab.toml: [broker] cores = True must be a number"),
        ("[broker]\nposition = [1]\n", "trimtab.toml: [broker] position = [1] must be [latitude, longitude]"),
        ("[broker]\nbandwidth = 0\n", "broker: bandwidth must be more than zero, or left out, but is 0"),
        ("[network]\nmodel = 'vivaldi'\n", "network: model must be one of serf, robust, none, but is 'vivaldi'"),
        ("[network]\nmodel = 1\n", "trimtab.toml: [network] model = 1 must be text"),
        ("[network]\nprobe_s = 0\n", "network: probe_s must be from 0.05 seconds to an hour, but is 0"),
        ("[network]\nalone = 1\n", "trimtab.toml: [network] alone = 1 must be true or false"),
        ("[network]\nprobe_s = '1s'\n", "trimtab.toml: [network] probe_s = '1s' must be a number of seconds"),
    ],
)
@pytest.mark.usefixtures("pems")
def test_a_setting_that_cannot_be_is_refused_with_what_would_be_right(folder, text, sentence):
    assert refusal(folder, text) == sentence


@pytest.mark.parametrize("text", ["[tls", "enabled true", "[tls]\nenabled = yes\n", "[tls]\n[tls]\n"])
def test_a_file_that_is_not_toml_is_refused_with_the_place(folder, text):
    said = refusal(folder, text)

    assert re.fullmatch(r"trimtab\.toml: .+ \(at (line \d+, column \d+|end of document)\)", said)


def test_settings_of_spark_are_passed_on(folder):
    (folder / FILE).write_text('[spark]\nmaster = "local[1]"\n"spark.ui.enabled" = true\n')

    assert load().spark == {"spark.master": "local[1]", "spark.ui.enabled": "true"}


def test_the_controllers_settings_are_read(folder):
    (folder / FILE).write_text('[control]\npolicy = "ldm"\nperiod_s = 2\nbudget = 0.2\n')

    assert load().control == Settings(policy="ldm", period_s=2, budget=0.2)


@pytest.mark.parametrize("policy", ["multistage", "client/multistage"])
def test_knobs_of_the_controllers_policy_are_read_in_their_types(folder, policy):
    (folder / FILE).write_text(f'[control]\npolicy = "{policy}"\n[control.knobs]\nalpha = 1\nscheme = "sdm"\n')

    knobs = load().control.knobs

    assert knobs == {"alpha": 1.0, "scheme": "sdm"}
    assert type(knobs["alpha"]) is float


def test_knobs_are_those_of_the_default_policy_if_none_is_named(folder):
    (folder / FILE).write_text('[control.knobs]\neffort = 0.5\nbudget = "none"\n')

    assert load().control == Settings(knobs={"effort": 0.5, "budget": None})


def test_without_the_table_no_knob_is_set():
    assert load().control.knobs == {}


def test_knobs_are_checked_again_when_another_policy_is_chosen():
    with pytest.raises(BadInput, match="there is no knob of client/ldm 'scheme'"):
        replace(Settings(policy="multistage", knobs={"scheme": "sdm"}), policy="ldm")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '[control]\npolicy = "ldm"\n[control.knobs]\nalpah = 0.1\n',
            "trimtab.toml: [control.knobs]: there is no knob of client/ldm 'alpah'; did you mean 'alpha'? "
            "known: alpha, beta, initial, seed",
        ),
        (
            '[control]\npolicy = "ldm"\n[control.knobs]\nalpha = -1\n',
            "trimtab.toml: [control.knobs]: client/ldm: alpha must be a number, 0 or more, but is -1",
        ),
        (
            '[control]\npolicy = "ldm"\n[control.knobs]\nalpha = "0.1"\n',
            "trimtab.toml: [control.knobs]: client/ldm: alpha must be a number, 0 or more, but is '0.1'",
        ),
        (
            '[control]\npolicy = "ldm"\n[control.knobs]\nseed = true\n',
            "trimtab.toml: [control.knobs]: client/ldm: seed must be a whole number, 0 or more, but is True",
        ),
        (
            "[control.knobs]\nbudget = [0.1]\n",
            "trimtab.toml: [control.knobs]: client/trim: budget must be a number from 0 to 1, or none, but is [0.1]",
        ),
        ("[control]\nknobs = 3\n", "trimtab.toml: [control] knobs = 3 must be a table: [control.knobs]"),
        (
            '[control]\npolicy = "ldn"\n[control.knobs]\nalpha = 1\n',
            "trimtab.toml: [control.knobs]: there is no policy 'client/ldn'; did you mean 'client/ldm'?",
        ),
        (
            "[control]\npolicy = 3\n[control.knobs]\nalpha = 1\n",
            "trimtab.toml: [control] policy = 3 must be text",
        ),
    ],
)
def test_a_knob_in_the_file_that_cannot_be_set_is_named_with_the_file(folder, text, sentence):
    assert refusal(folder, text).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[control]\nperiod_s = 0\n", "period_s"),
        ('[control]\nalpha = "much"\n', "must be a number"),
        ("[control]\npolicy = 3\n", "must be text"),
        ("[control]\npatience = 1.5\n", "must be a whole number"),
        ("[control]\nhurry = true\n", "has no key 'hurry'"),
    ],
)
def test_a_setting_of_the_controller_that_cannot_be(folder, text, sentence):
    assert sentence in refusal(folder, text)
