"""One Spark application: how it is configured, and how it is told to be quiet."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any, Final

from trimtab.pipeline.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

CORES: Final = os.cpu_count() or 1
# What suits one machine; every key can be overridden under [spark] of trimtab.toml.
DEFAULTS: Final = {
    # Reading, continuous channels and those with a period go on at the same time. With a slot for each, a short task
    # does not wait until a long one is over; each makes as many tasks as there are cores, as usual.
    "spark.master": f"local[{3 * CORES}]",
    "spark.default.parallelism": f"{CORES}",
    "spark.driver.memory": "4g",
    # Plans are made anew all the time and each runs for a moment: with every method compiled as soon as usual, the
    # compilers take a third of two cores for minutes, and the default collector a quarter more than this one.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:CompileThresholdScaling=3",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ansi.enabled": "false",  # one division by zero must not cost all subscriptions their results
    "spark.sql.crossJoin.enabled": "true",  # whether one is allowed is decided by the channel's check, with a reason
    "spark.sql.autoBroadcastJoinThreshold": "64MB",
    "spark.sql.adaptive.enabled": "false",  # executions are small and alike; their plans are chosen by size before
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",  # subscriptions of a task with results
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # most of it is read a few times and forgotten
    "spark.sql.codegen.cache.maxEntries": "10000",  # what falls out is compiled again, at every execution
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # looks at the stack for every column that is named
    "spark.sql.artifact.isolation.enabled": "false",
}

# For work that is done once and then over: nothing waits for a slot, and what is read is not kept.
ONCE: Final = {"spark.master": f"local[{CORES}]", "spark.driver.memory": "2g"}


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Processes that are started meanwhile have no terminal to write to; if that fails, what they wrote is told."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except Exception:
            said.seek(0)
            os.write(kept, said.read()[-4000:])
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def open_session(name: str, settings: Mapping[str, str] | None = None, *, quiet: bool = False) -> SparkSession:
    """The session, started if there is none; takes 5 to 20 s then. ``quiet``: what Java has to say on its way is kept
    from people, unless it does not start."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # repeats every error with all its frames
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    heard = signal.getsignal(signal.SIGINT)
    with _hushed() if quiet else contextlib.nullcontext():
        session: SparkSession = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, heard)  # Spark's own would interrupt whatever is under way
    return session
