"""``trimtab.toml``: settings that outlive a command. Environment variables override it.

    [tls]
    enabled = true          # TLS on every connection; without files, a fleet generates its own authority
    ca = "ca.pem"           # PEM files of your own
    cert = "cert.pem"
    key = "key.pem"

    [spark]
    master = "local[2]"     # any setting of Spark, without the leading "spark."
    "driver.memory" = "8g"

    [hub]
    forget_s = 604800       # absence after which a client is removed, with its subscriptions to channels
    forget_unnamed_s = 600  # the same for a client without a name
    first = "roomiest"      # first placements: roomiest, nearest, round-robin or random

    [broker]
    bandwidth = 12.5e6      # bytes/s that a broker carries, in and out; default: no limit
    cores = 4               # default: the cores of its machine
    speed = 0.5             # of one core, relative to the hardware profile that predicts latencies; default: 1
    memory = 8e9            # bytes; default: the memory of its machine
    position = [47.07, 15.44]

    [network]
    model = "robust"        # of network coordinates: robust, serf or none
    probe_s = 1.0           # interval at which a broker measures the round-trip time to another one
    alone = true            # whether brokers move topics to their clients themselves while no controller acts

    [control]
    policy = "trim"         # see control/settings.py
    period_s = 5
    model = "profile"       # folder of trimtab profile: predicts latencies; default: an unknown machine, no drift alarm

    [control.knobs]         # knobs of the policy; `trimtab policies NAME` lists them
    effort = 2.0

``TRIMTAB_CONFIG`` names another file; ``TRIMTAB_TLS=1`` or ``0`` overrides ``tls.enabled``.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from trimtab.control.model_file import read_model
from trimtab.control.settings import Settings
from trimtab.errors import BadInput
from trimtab.fleet.broker.capacity import Capacity
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.site.credentials import Tls
from trimtab.place.knobs import typed
from trimtab.place.registry import full_name

FILE: Final = "trimtab.toml"
CONTROL: Final = tuple(column.name for column in fields(Settings))
HUB: Final = tuple(column.name for column in fields(HubSettings))
NETWORK: Final = tuple(column.name for column in fields(NetworkSettings))
BROKER: Final = tuple(column.name for column in fields(Capacity))
KNOWN: Final = {  # table -> its keys; empty: any key
    "tls": ("enabled", "ca", "cert", "key"), "spark": (), "hub": HUB, "broker": BROKER, "network": NETWORK,
    "control": CONTROL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    tls: bool | Tls = False
    spark: dict[str, str] = field(default_factory=dict)
    control: Settings = field(default_factory=Settings)
    broker: Capacity = field(default_factory=Capacity)
    hub: HubSettings = field(default_factory=HubSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    model: Path | None = None  # what [control] model names: the same model with all that was learned


def load() -> Config:
    """The settings in ./trimtab.toml, or in the file that $TRIMTAB_CONFIG names; the defaults if there is no file."""
    named = os.environ.get("TRIMTAB_CONFIG")
    path = Path(named or FILE)
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if named:
            raise BadInput(f"there is no {path}, which TRIMTAB_CONFIG names") from None
        content = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    for table, keys in content.items():
        if table not in KNOWN or not isinstance(keys, dict):
            raise BadInput(f"{path}: there is no table [{table}]; known: {', '.join(f'[{name}]' for name in KNOWN)}")
        for key in keys:
            if KNOWN[table] and key not in KNOWN[table]:
                raise BadInput(f"{path}: [{table}] has no key '{key}'; known: {', '.join(KNOWN[table])}")
    control = _control(path, content.get("control", {}))
    broker = _broker(path, content.get("broker", {}))
    hub = _hub(path, content.get("hub", {}))
    network = _network(path, content.get("network", {}))
    model = content.get("control", {}).get("model")
    return Config(
        _tls(path, content.get("tls", {})), _spark(path, content.get("spark", {})), control, broker, hub, network,
        None if model is None else path.parent / model,
    )  # fmt: skip


def _hub(path: Path, table: dict[str, Any]) -> HubSettings:
    for key, value in table.items():
        kind, rule = (str, "text") if key == "first" else ((int, float), "a number of seconds")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise BadInput(f"{path}: [hub] {key} = {value!r} must be {rule}")
    return HubSettings(**table)


def _network(path: Path, table: dict[str, Any]) -> NetworkSettings:
    for key, value in table.items():
        kind: tuple[Any, str] = (str, "text") if key == "model" else ((int, float), "a number of seconds")
        kind = (bool, "true or false") if key == "alone" else kind
        if not isinstance(value, kind[0]) or (isinstance(value, bool) and key != "alone"):
            rule = kind[1]
            raise BadInput(f"{path}: [network] {key} = {value!r} must be {rule}")
    return NetworkSettings(**table)


def _broker(path: Path, table: dict[str, Any]) -> Capacity:
    for key, value in table.items():
        parts = value if key == "position" and isinstance(value, list) and len(value) == 2 else [value]
        rule = "[latitude, longitude]" if key == "position" else "a number"
        if any(not isinstance(number, (int, float)) or isinstance(number, bool) for number in parts) or (
            key == "position" and len(parts) != 2
        ):
            raise BadInput(f"{path}: [broker] {key} = {value!r} must be {rule}")
    return Capacity(**(table | ({"position": tuple(table["position"])} if "position" in table else {})))


def _control(path: Path, table: dict[str, Any]) -> Settings:
    knobs = _knobs(path, table.get("policy", Settings().policy), table.get("knobs", {}))
    for key, value in table.items():
        if key == "knobs":
            continue
        kind: tuple[Any, str] = (str, "text") if key in ("policy", "model") else ((int, float), "a number")
        switch = key in ("thrift", "nearness")
        kind = (bool, "true or false") if switch else kind
        if not isinstance(value, kind[0]) or (isinstance(value, bool) and not switch):
            raise BadInput(f"{path}: [control] {key} = {value!r} must be {kind[1]}")
        if key in ("patience", "seed") and not isinstance(value, int):
            raise BadInput(f"{path}: [control] {key} = {value!r} must be a whole number")
    model = read_model(path.parent / table["model"]) if "model" in table else {}
    return Settings(**(table | {"knobs": knobs, "model": model}))


def _knobs(path: Path, policy: Any, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise BadInput(f"{path}: [control] knobs = {table!r} must be a table: [control.knobs]")
    if not table or not isinstance(policy, str):
        return {}
    try:
        return typed(full_name(policy, "client"), table)
    except BadInput as error:
        raise BadInput(f"{path}: [control.knobs]: {error}") from None


def _spark(path: Path, table: dict[str, Any]) -> dict[str, str]:
    settings = {}
    for key, value in table.items():
        if isinstance(value, (dict, list)):
            raise BadInput(
                f"{path}: [spark] {key} = {value!r} must be text, a number, true or false; quote dotted keys"
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        settings[key if key.startswith("spark.") else f"spark.{key}"] = text
    return settings


def _tls(path: Path, table: dict[str, Any]) -> bool | Tls:
    enabled = table.get("enabled", bool(table))
    if not isinstance(enabled, bool):
        raise BadInput(f"{path}: [tls] enabled = {enabled!r} must be true or false")
    override = os.environ.get("TRIMTAB_TLS")
    if override is not None:
        if override not in ("0", "1"):
            raise BadInput(f"TRIMTAB_TLS={override!r} must be 0 or 1")
        enabled = override == "1"
    files = {key: table[key] for key in ("ca", "cert", "key") if key in table}
    if not enabled or not files:
        return enabled
    if len(files) < 3:
        raise BadInput(f"{path}: [tls] needs ca, cert and key together, or none of them; it has {', '.join(files)}")
    paths = {}
    for key, file in files.items():
        if not isinstance(file, str) or not (path.parent / file).is_file():
            raise BadInput(f"{path}: [tls] {key} = {file!r} is not a file")
        paths[key] = str((path.parent / file).resolve())
    return Tls(**paths)
