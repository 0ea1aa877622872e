"""Start times: import and help, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from trimtab.cli.output import print_table, seconds

RUNS = 7


def main() -> None:
    command = str(Path(sys.executable).with_name("trimtab"))
    commands = {
        "python -c pass (baseline)": [sys.executable, "-c", "pass"],
        "import trimtab": [sys.executable, "-c", "import trimtab"],
        "trimtab --help": [command, "--help"],
        "trimtab plan --help": [command, "plan", "--help"],
    }
    rows = []
    for name, arguments in commands.items():
        times = []
        for _ in range(RUNS):
            start = time.perf_counter()
            subprocess.run(arguments, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        rows.append((name, seconds(min(times)), seconds(sorted(times)[RUNS // 2])))
    print_table(f"start, {RUNS} fresh processes each", ["command", "best", "median"], rows)
