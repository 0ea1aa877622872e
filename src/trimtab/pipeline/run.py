"""One application from its manifest to its loop: everything is checked before anything is made."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from trimtab.fleet import tasks
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
from trimtab.fleet.site.lock import lock
from trimtab.pipeline import hub
from trimtab.pipeline.manifest import App, load
from trimtab.pipeline.plan import check_plans, compile_channels
from trimtab.pipeline.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trimtab.pipeline.driver import Done, Driver


def run(
    manifest: Path | None, home: Path, settings: Mapping[str, str], *, stopping: Callable[[], bool],
    step: Callable[[str], None], told: Callable[[Done], None], up: Callable[[Driver], None],
) -> None:  # fmt: skip
    """Until ``stopping``. ``step`` hears how the start goes, ``up`` when it is over, ``told`` of every execution.

    Without a manifest, there is only telemetry to turn into measurements.
    """
    app = load(manifest) if manifest is not None else App.empty()
    plans = compile_channels(app)
    fleet = Fleet.load(home / FLEET_FILE)
    tasks.run(hub.reach(fleet))
    folder = home / "pipeline" / app.name
    with lock(folder, f"the pipeline of '{app.name}' of the fleet in {home}", "stop it first"):
        step("starting Spark")
        spark = open_session(f"trimtab {app.name}", settings)
        try:
            from trimtab.pipeline.driver import Driver
            from trimtab.pipeline.observer import Observer

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
                ended = threading.Event()
                fed = {topic for feed in app.feeds.values() for topic in feed.topics}
                observer = Observer(spark, hub.server_of(fleet), home / "pipeline" / "history", fed)
                observing = threading.Thread(target=observer.run, args=(ended.is_set,), name="observer", daemon=True)
                observing.start()
                try:
                    driver.run(stopping)
                finally:
                    ready.unlink(missing_ok=True)
                    ended.set()
                    observing.join(10.0)
        finally:
            spark.stop()
