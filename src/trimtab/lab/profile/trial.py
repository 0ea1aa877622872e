"""One run of a load test: topics with processors at a real broker, a load on them, and what was measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import Unreachable
from trimtab.fleet.protocol import subjects
from trimtab.lab.profile.design import Colocation

if TYPE_CHECKING:
    from trimtab.lab.profile.bench import Bench

WARM_S: Final = 2.0
WAIT_S: Final = 12.0  # longest wait for results after the last publication
REPORT_S: Final = 3.0  # limit for the broker's last report of a run
SIZE_BYTES: Final = 4096
QUANTILES: Final = (50, 90, 99)
LOAD: Final = "trimtab.lab.profile.load"
START_S: Final = 30.0  # what the process of the load may take besides


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run measured. Tuples have a value for each topic."""

    number: int  # of the run in its plan
    colocation: Colocation
    seed: int
    seconds: float
    at: float  # seconds since 1970
    p50_ms: tuple[float | None, ...]  # None where too few results arrived to know
    p90_ms: tuple[float | None, ...]
    p99_ms: tuple[float | None, ...]
    messages: tuple[int, ...]
    missing: tuple[int, ...]  # messages without a result
    cpu_ms: tuple[float | None, ...]  # CPU time of the processor per message, by the broker's reports
    machine_cores: float | None  # cores in use on the broker's machine, by all processes; None if it is not this one
    client_cores: float | None  # by the process that publishes and receives
    broker_cores: float | None  # by the broker's processes, without processors
    late_ms: float  # p90 of how late messages were sent

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"colocation": self.colocation.as_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trial:
        columns: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        columns["colocation"] = Colocation.from_json(values["colocation"])
        return cls(**columns)

    @property
    def other_cores(self) -> float | None:
        """Cores in use by anything but the processors of these topics."""
        if self.machine_cores is None or any(ms is None for ms in self.cpu_ms):
            return None
        used = sum(rate * (ms or 0.0) for rate, ms in zip(self.colocation.rate, self.cpu_ms, strict=True)) / 1000.0
        return self.machine_cores - used

    @property
    def foreign_cores(self) -> float | None:
        """Cores in use by processes that have no part in the load test."""
        if self.other_cores is None:
            return None
        return self.other_cores - (self.client_cores or 0.0) - (self.broker_cores or 0.0)


async def run_trial(bench: Bench, number: int, colocation: Colocation, seed: int, seconds: float) -> Trial:
    """Create the topics, apply the load, and delete the topics again."""
    async with bench.topics(colocation.processing_ms, number) as names:
        job = {
            "url": bench.url, **bench.access, "name": f"trimtab:load-{number}", "pids": bench.pids,
            "source": f"load-{number}.{secrets.token_hex(4)}",
            "publish": [subjects.work(name) for name in names],
            "subscribe": [subjects.deliver(name) for name in names],
            "rates": list(colocation.rate), "publishers": list(colocation.rate),
            "subscribers": list(colocation.subscribers), "seed": seed, "seconds": seconds,
            "warm_s": WARM_S, "wait_s": WAIT_S, "size_bytes": SIZE_BYTES,
        }  # fmt: skip
        measured = await run_load(job, WARM_S + seconds + WAIT_S + START_S)
        latencies = [_with_missing(row) for row in measured["latencies_ms"]]
        cpu_ms = await _cpu_ms(bench, names, [len(row) for row in latencies])
    p50, p90, p99 = (tuple(_quantile(row, q) for row in latencies) for q in QUANTILES)
    machine, client, *broker = [_number(value) for value in measured["cores"] or [None, None]]
    if not bench.pids:  # the broker has another machine
        machine = None
    return Trial(
        number, colocation, seed, seconds, time.time(), p50, p90, p99, tuple(len(row) for row in latencies),
        tuple(int(np.isinf(row).sum()) for row in latencies), cpu_ms, machine, client,
        sum(value or 0.0 for value in broker) if broker else None, measured["late_ms"],
    )  # fmt: skip


async def run_load(job: dict[str, Any], limit_s: float, module: str = LOAD) -> dict[str, Any]:
    """What a process of a load measures; it gets its job as a line of JSON, and answers with one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, limit=1 << 26,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate(json.dumps(job).encode() + b"\n")
    except TimeoutError:
        raise Unreachable(f"the load test did not end within {limit_s:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        measured: dict[str, Any] = json.loads(output)
    except ValueError:
        raise Unreachable(f"the process of the load test ended with exit code {process.returncode}") from None
    if "error" in measured:
        raise Unreachable(f"the broker at {job['url']} ended the load test: {measured['error']}")
    return measured


async def _cpu_ms(bench: Bench, names: list[str], messages: list[int]) -> tuple[float | None, ...]:
    """CPU time per message of each processor, once the broker has reported all counted messages."""
    deadline = time.monotonic() + REPORT_S
    while True:
        processed, busy = [0] * len(names), [0.0] * len(names)
        for report in bench.reports:
            for row, name in enumerate(names):
                if (topic := report.topics.get(name)) is not None:
                    processed[row] += topic.processed
                    busy[row] += topic.busy_s
        complete = all(done >= count for done, count in zip(processed, messages, strict=True))
        if complete or time.monotonic() > deadline:
            return tuple(1000.0 * s / n if n else None for s, n in zip(busy, processed, strict=True))
        await asyncio.sleep(0.1)


def _with_missing(latencies: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Latencies, infinite for messages without a result."""
    return np.array([np.inf if value is None else value for value in latencies], np.float64)


def _quantile(latencies: np.ndarray[Any, np.dtype[np.float64]], q: float) -> float | None:
    """None without messages, or where missing results reach the percentile."""
    if not len(latencies):
        return None
    ordered = np.sort(latencies)
    place = q / 100.0 * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    if np.isinf(high):
        return None
    return float(low + (place - int(place)) * (high - low))


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value
