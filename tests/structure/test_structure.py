"""The shape of the project: who may import whom, what is public, how fast it starts."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trimtab
from helpers.source import imports, is_compiled, parameters, within

SOURCE = Path(trimtab.__file__).parent
ALLOWED = {  # folder -> folders it may import, besides itself and the top-level modules
    "model": set(),
    "observe": {"model"},
    "predict": {"model"},
    "place": {"model", "predict"},
    "migrate": {"model"},
    "fleet": {"model", "observe", "predict", "place", "migrate"},
    "control": {"model", "observe", "predict", "place", "migrate", "fleet"},
    "pipeline": {"model", "observe", "predict", "place", "migrate", "fleet"},
    "lab": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline"},
    "web": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline", "lab"},
    "cli": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline", "lab", "web"},
}
PURE = ("model", "observe", "predict", "place", "migrate")  # no network, no event loop, no clock; not for types either
IMPURE = {"asyncio", "nats", "pyspark", "time", "datetime", "socket", "trimtab.clock"}
COMMON = {"trimtab.fleet.site.credentials", "trimtab.fleet.tasks"}
FLEET = {  # folder in fleet -> what of the fleet it may import, besides itself
    "protocol": COMMON,
    "sdk": COMMON | {"trimtab.fleet.protocol"},
    "broker": COMMON | {"trimtab.fleet.protocol"},
    "hub": COMMON | {"trimtab.fleet.protocol"},
}
MOST_LINES = 400
MOST_PARAMETERS = 8


def names(path: Path) -> str:
    """Of a file, the dotted name of its module."""
    return ".".join(("trimtab", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def modules():
    return sorted(SOURCE.rglob("*.py"))


def forbidden(source: str, module: str) -> list[str]:
    """What a module imports against the rules; ``module`` is its dotted name."""
    _, folder, inner, *_ = [*module.split("."), "", ""]
    lazy = {f"trimtab.{name}": f"trimtab.{home}" for name, home in trimtab._HOME.items()}
    imported = {lazy.get(name, name) for name in imports(source, module)}
    refused = {name for name in imported if folder in PURE and within(name, IMPURE)}
    if folder in ALLOWED:
        others = {f"trimtab.{other}" for other in ALLOWED.keys() - ALLOWED[folder] - {folder}}
        refused |= {name for name in imported if within(name, others)}
    if folder == "fleet" and inner in FLEET:
        known = FLEET[inner] | {f"trimtab.fleet.{inner}"}
        refused |= {
            name
            for name in imported
            if within(name, {"trimtab.fleet"})
            and not within(name, known)
            and not any(within(module, {name}) for module in known)  # "from trimtab.fleet import protocol" names both
        }
    return sorted(refused)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    assert forbidden(path.read_text(), names(path)) == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("place.x", "import pyspark.sql", ["pyspark.sql"]),
        ("place.x", "import numpy, pyspark.sql as sql", ["pyspark.sql"]),
        ("predict.x", "from nats.aio.client import Client", ["nats.aio.client", "nats.aio.client.Client"]),
        ("observe.x", "import asyncio.tasks", ["asyncio.tasks"]),
        ("model.x", "from trimtab import clock", ["trimtab.clock"]),
        ("model.x", "from trimtab.clock import now", ["trimtab.clock", "trimtab.clock.now"]),
        ("migrate.x", "from .. import clock", ["trimtab.clock"]),
        ("migrate.x", "def f():\n    import time", ["time"]),
        ("place.client.x", "class A:\n    async def f(self):\n        import socket", ["socket"]),
        ("place.x", "if TYPE_CHECKING:\n    from datetime import date", ["datetime", "datetime.date"]),
        ("place.x", "try:\n    import nats\nexcept ImportError:\n    nats = None", ["nats"]),
        ("place.x", "importlib.import_module('pyspark.sql')", ["pyspark.sql"]),
        ("place.x", "from trimtab import connect", ["trimtab.fleet.sdk.client"]),
        ("place.x", "from trimtab import fleet", ["trimtab.fleet"]),
        ("observe.x", "from ..predict import forecast", ["trimtab.predict", "trimtab.predict.forecast"]),
        ("control.x", "import trimtab.pipeline.sql", ["trimtab.pipeline.sql"]),
        ("fleet.sdk.x", "from trimtab.fleet import hub", ["trimtab.fleet.hub"]),
        ("fleet.sdk.x", "def f():\n    import trimtab.fleet.broker.agent", ["trimtab.fleet.broker.agent"]),
        ("fleet.broker.processing.x", "import trimtab.fleet.hub.keeper as k", ["trimtab.fleet.hub.keeper"]),
        ("fleet.hub.x", "from ..sdk import client", ["trimtab.fleet.sdk", "trimtab.fleet.sdk.client"]),
        ("fleet.hub.x", "from trimtab.fleet.site import server", ["trimtab.fleet.site.server"]),
        ("fleet.protocol.x", "from trimtab.fleet.sdk import client", ["trimtab.fleet.sdk", "trimtab.fleet.sdk.client"]),
        ("model.x", "import timeit, natsort, asyncio_tools\nfrom trimtab import errors, Problem", []),
        ("place.x", "from trimtab.model.problem import Problem", []),
        ("fleet.hub.x", "from trimtab.fleet import protocol, tasks\nfrom trimtab.fleet.site import credentials", []),
        ("fleet.site.x", "from trimtab.fleet.hub import keeper\nimport asyncio", []),
        ("control.x", "import asyncio, time", []),
    ],
)  # fmt: skip
def test_the_import_test_sees_every_form(module, source, found):
    assert forbidden(source, f"trimtab.{module}") == found


def test_no_module_is_too_long():
    long = {str(path.relative_to(SOURCE)) for path in modules() if len(path.read_text().splitlines()) > MOST_LINES}

    assert long == set(), f"over {MOST_LINES} lines"


def test_no_function_has_too_many_parameters():
    many = {
        f"{path.relative_to(SOURCE)}: {function}"
        for path in modules()
        for function, count in parameters(path.read_text())
        if count > MOST_PARAMETERS
    }

    assert many == set(), f"more than {MOST_PARAMETERS} parameters"


def test_parameters_are_counted_as_they_should_be():
    source = """
class A:
    async def a(self, b, /, c, *more, d=1, **rest): ...
    @classmethod
    def e(cls): ...
@compiled
def f(g, h): ...
@compiled(fast=True)
def i(j): ...
"""

    assert dict(parameters(source)) == {"a": 3, "e": 0}


@pytest.mark.parametrize("path", [p for p in modules() if "@compiled" in p.read_text()], ids=lambda p: p.stem)
def test_a_kernel_calls_kernels_of_its_own_file_only(path):
    """Numba's cache on disk does not notice that a kernel in another file has changed."""
    tree = ast.parse(path.read_text())
    foreign = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("trimtab.place", "trimtab.predict"))
        for alias in node.names
        if alias.name != "compiled"
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and is_compiled(node):
            called = {c.func.id for c in ast.walk(node) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}
            assert not called & foreign


def test_everything_public_is_importable_and_documented():
    assert len(trimtab.__all__) <= 18
    for name in trimtab.__all__:
        assert getattr(trimtab, name).__doc__
    with pytest.raises(AttributeError):
        trimtab.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import trimtab", {"numba", "pyarrow", "matplotlib", "highspy", "numpy", "rich"}),
        (
            "import trimtab.cli.main as m; m.trimtab.main(['--help'], standalone_mode=False)",
            {"numba", "pyarrow", "matplotlib"},
        ),
        ("from trimtab import policies; policies()", {"numba", "matplotlib"}),
    ],
)
def test_starting_loads_nothing_heavy(code, heavy):
    """Help must be instant, so whatever compiles or draws is imported when it is used."""
    script = f"{code}\nimport sys; print('LOADED', *sorted(set(sys.modules) & {heavy!r}))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "LOADED"


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    from trimtab.lab.worlds.maxdata import MaxData
    from trimtab.model.folder import write_workload

    readme = (SOURCE.parents[1] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    write_workload(MaxData().make(0), tmp_path / "city")
    monkeypatch.chdir(tmp_path)

    exec(compile(code, "README.md", "exec"), {})

    assert "of the data arrives" in capsys.readouterr().out


def test_the_readmes_client_runs_on_a_live_fleet(fleet, monkeypatch, capsys):
    code = (SOURCE.parents[1] / "README.md").read_text().split("```python\n")[2].split("```")[0]
    monkeypatch.setenv("TRIMTAB_HOME", str(fleet.home))

    exec(compile(code, "README.md", "exec"), {})

    assert "taxi-7 47.07,15.44" in capsys.readouterr().out


def test_the_readme_names_the_two_commands_that_ci_runs():
    root = SOURCE.parents[1]

    assert "make demo" in (root / "README.md").read_text()
    assert "make test" in (root / "README.md").read_text()
    assert "make test" in (root / ".ci" / "run").read_text()
