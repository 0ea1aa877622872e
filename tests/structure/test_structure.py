"""The shape of the project: who may import whom, what is public, how fast it starts."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trimtab

SOURCE = Path(trimtab.__file__).parent
ALLOWED = {  # folder -> folders it may import, besides itself and the top-level modules
    "model": set(),
    "observe": {"model"},
    "predict": {"model"},
    "place": {"model"},
    "migrate": {"model"},
    "fleet": {"model", "observe", "predict", "place", "migrate"},
    "control": {"model", "observe", "predict", "place", "migrate", "fleet"},
    "pipeline": {"model", "observe", "predict", "place", "migrate", "fleet"},
    "lab": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline"},
    "web": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline", "lab"},
    "cli": {"model", "observe", "predict", "place", "migrate", "fleet", "control", "pipeline", "lab", "web"},
}
PURE = ("model", "observe", "predict", "place", "migrate")  # no network, no event loop, no clock
IMPURE = {"asyncio", "nats", "pyspark", "time", "datetime", "socket", "trimtab.clock"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def modules():
    return sorted(path for path in SOURCE.rglob("*.py") if len(path.relative_to(SOURCE).parts) > 1)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    folder = path.relative_to(SOURCE).parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "trimtab" and len(parts) > 1 and (SOURCE / parts[1]).is_dir():
            assert parts[1] in ALLOWED[folder] | {folder}, f"{path} imports {name}"
    if folder in PURE:
        assert not imports(path) & IMPURE


@pytest.mark.parametrize("path", [p for p in modules() if "@compiled" in p.read_text()], ids=lambda p: p.stem)
def test_a_kernel_calls_kernels_of_its_own_file_only(path):
    """Numba's cache on disk does not notice that a kernel in another file has changed."""
    tree = ast.parse(path.read_text())
    foreign = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trimtab.place")
        for alias in node.names
        if alias.name != "compiled"
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "compiled" for d in node.decorator_list):
            called = {c.func.id for c in ast.walk(node) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)}
            assert not called & foreign


def test_everything_public_is_importable_and_documented():
    assert len(trimtab.__all__) <= 16
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
