"""``python -m benchmarks [NAME ...]``: runs all benchmarks, or those named, and prints one table each."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import (
    balance,
    channels,
    colocation,
    control,
    crowd,
    elastic,
    fleet,
    homes,
    kills,
    latency,
    links,
    nats_source,
    nearness,
    pipeline,
    start,
    topics,
)

ALL = {
    "start": start.main,
    "links": links.main,
    "homes": homes.main,
    "fleet": fleet.main,
    "crowd": crowd.main,
    "nats_source": nats_source.main,
    "channels": channels.main,
    "pipeline": pipeline.main,
    "kills": kills.main,
    "control": control.main,
    "balance": balance.main,
    "topics": topics.main,
    "colocation": colocation.main,
    "elastic": elastic.main,
    "nearness": nearness.main,
    "latency": latency.main,
}


def main() -> None:
    names = sys.argv[1:] or list(ALL)
    for name in names:
        if name not in ALL:
            sys.exit(f"there is no benchmark '{name}'; known: {', '.join(ALL)}")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    print(f"commit {commit or 'unknown'}")
    for name in names:
        ALL[name]()


main()
