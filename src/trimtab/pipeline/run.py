"""One application from its manifest to its loop: everything is checked before anything is made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab.fleet.credentials import FLEET_FILE, Fleet
from trimtab.fleet.lock import lock
from trimtab.pipeline import hub
from trimtab.pipeline.manifest import load
from trimtab.pipeline.plan import check_plans, compile_channels
from trimtab.pipeline.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trimtab.pipeline.driver import Done, Driver


def run(
    manifest: Path, home: Path, settings: Mapping[str, str], *, stopping: Callable[[], bool],
    step: Callable[[str], None], told: Callable[[Done], None], up: Callable[[Driver], None],
) -> None:  # fmt: skip
    """Until ``stopping``. ``step`` hears how the start goes, ``up`` when it is over, ``told`` of every execution."""
    app = load(manifest)
    plans = compile_channels(app)
    fleet = Fleet.load(home / FLEET_FILE)
    asyncio.run(hub.reach(fleet))
    folder = home / "pipeline" / app.name
    with lock(folder, f"the pipeline of '{app.name}' of the fleet in {home}", "stop it first"):
        step("starting Spark")
        spark = open_session(f"trimtab {app.name}", settings)
        try:
            from trimtab.pipeline.driver import Driver

            step("checking channels")
            check_plans(spark, app, plans.values())
            ready = home / "pipeline" / "ready"
            with Driver(spark, hub.server_of(fleet), app, plans, folder, told) as driver:
                step("reading files")
                driver.load()
                hub.prepare(fleet, app)
                step("reading the ledger")
                driver.start()
                ready.touch()
                up(driver)
                try:
                    driver.run(stopping)
                finally:
                    ready.unlink(missing_ok=True)
        finally:
            spark.stop()
