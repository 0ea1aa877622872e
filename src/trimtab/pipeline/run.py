"""Runs one application, from its manifest to its loop. The application is checked before streams are created."""

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
    step: Callable[[str], None], on_execution: Callable[[Done], None], on_ready: Callable[[Driver], None],
) -> None:  # fmt: skip
    """Run until ``stopping``.

    ``step`` is called at every step of the start, ``on_ready`` after the start, and ``on_execution`` after every
    execution. Without a manifest, the pipeline only measures the fleet.
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
            with Driver(spark, hub.server_of(fleet), app, plans, folder, on_execution) as driver:
                step("reading files")
                driver.load()
                hub.prepare(fleet, app)
                step("reading the ledger")
                driver.start()
                ready.touch()
                on_ready(driver)
                stopped = threading.Event()
                feed_topics = {topic for feed in app.feeds.values() for topic in feed.topics}
                observer = Observer(spark, hub.server_of(fleet), home / "pipeline" / "history", feed_topics)
                thread = threading.Thread(target=observer.run, args=(stopped.is_set,), name="observer", daemon=True)
                thread.start()
                try:
                    driver.run(stopping)
                finally:
                    ready.unlink(missing_ok=True)
                    stopped.set()
                    thread.join(10.0)
        finally:
            spark.stop()
