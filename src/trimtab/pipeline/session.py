"""Starts and configures the Spark session, and silences Java's start-up messages."""

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
# Settings for a single machine; every key can be overridden under [spark] of trimtab.toml.
DEFAULTS: Final = {
    # Reading, continuous channels and channels with a period run at the same time. With slots for all three, a short
    # task does not wait for a long one. Each of them still makes as many tasks as there are cores.
    "spark.master": f"local[{3 * CORES}]",
    "spark.default.parallelism": f"{CORES}",
    "spark.driver.memory": "4g",
    # New plans are generated all the time, and each runs briefly. With the default thresholds, the JIT compilers take a
    # third of two cores for minutes, and the default garbage collector takes a quarter more than this one.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:CompileThresholdScaling=3",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.ansi.enabled": "false",  # a division by zero must not fail the execution for all subscriptions
    "spark.sql.crossJoin.enabled": "true",  # check_plans refuses cross joins, and gives the reason
    "spark.sql.autoBroadcastJoinThreshold": "64MB",
    "spark.sql.adaptive.enabled": "false",  # executions are small and similar; we choose their plans by size
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",  # most subscriptions with results per task
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # most cached data is read only a few times
    "spark.sql.codegen.cache.maxEntries": "10000",  # an evicted class is compiled again at every execution
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # debugging inspects the stack for every column
    "spark.sql.artifact.isolation.enabled": "false",
}

# Settings for one-off jobs: no other task needs a slot, and no data is kept in memory.
ONCE: Final = {"spark.master": f"local[{CORES}]", "spark.driver.memory": "2g"}


@contextlib.contextmanager
def _captured_stderr() -> Iterator[None]:
    """Capture the stderr of processes started in this block; it is shown only if the block fails."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield
        except Exception:
            output.seek(0)
            os.write(stderr, output.read()[-4000:])
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def open_session(name: str, settings: Mapping[str, str] | None = None, *, quiet: bool = False) -> SparkSession:
    """The Spark session. If there is none, it is started, which takes 5 to 20 s.

    ``quiet``: Java's start-up messages are shown only if the start fails.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it repeats every error with a stack trace
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    handler = signal.getsignal(signal.SIGINT)
    with _captured_stderr() if quiet else contextlib.nullcontext():
        session: SparkSession = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)  # Spark's own handler would cancel running jobs
    return session
