"""The broker that load tests use: one of a running fleet, or the only one of a fleet of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.sdk import client_file
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.observe.report import BrokerReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any

    from nats.aio.msg import Msg

    from trimtab.fleet.sdk.client import Client

PREFIX: Final = "trimtab-profile"  # of the topics of load tests, and the name of the client that creates them
OWN: Final = "b1"  # the broker of a fleet of its own
LIMIT_MS: Final = 60_000.0  # a message of a load test is never too late


@dataclass(slots=True)
class Bench:
    """A broker, a client that creates topics there, and the broker's reports."""

    broker: str
    url: str
    access: dict[str, Any]  # user, password, certificate authority
    pids: list[int]  # processes of the broker without its processors; empty if it is on another machine
    reports: list[BrokerReport] = field(default_factory=list)
    _client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    @contextlib.asynccontextmanager
    async def topics(self, processing_ms: Sequence[float], number: int) -> AsyncIterator[list[str]]:
        """Topics with processors that burn so much CPU time; they are deleted at the end."""
        names = [f"{PREFIX}.{number}.{row}" for row in range(len(processing_ms))]
        try:
            await asyncio.gather(
                *(
                    self.client.create_topic(name, broker=self.broker, processor=f"burn?ms={ms:g}", limit_ms=LIMIT_MS)
                    for name, ms in zip(names, processing_ms, strict=True)
                )
            )
            self.reports.clear()
            yield names
        finally:
            await asyncio.gather(*(self.client.delete_topic(name) for name in names), return_exceptions=True)

    async def on_report(self, raw: Msg) -> None:
        report = coding.decode(raw.data, BrokerReport)
        if report.broker == self.broker:
            self.reports.append(report)


@contextlib.asynccontextmanager
async def open_bench(home: Path | None = None, broker: str | None = None) -> AsyncIterator[Bench]:
    """A broker of the fleet in ``home``; without one, a broker of a new fleet that ends afterwards."""
    async with contextlib.AsyncExitStack() as stack:
        if home is None:
            home, broker = await stack.enter_async_context(_own_fleet()), OWN
        content = client_file.read(home)
        operator = await stack.enter_async_context(Operator.open(home))
        alive = await operator.alive()
        chosen = broker or min(alive, default="")
        if not chosen:
            raise Unreachable(f"no broker of the fleet in {home} is alive")
        if chosen not in alive:
            known = ", ".join(sorted(alive)) or "none"
            raise BadInput(f"there is no broker '{chosen}' to profile; alive: {known}")
        access = {name: content.get(name) for name in ("user", "password", "ca")}
        bench = Bench(chosen, content["brokers"][chosen][0], access, processes_of(home, chosen))
        await _delete_leftovers(operator, home, chosen)
        bench._client = await stack.enter_async_context(connect(home, name=PREFIX, home=chosen))
        await operator.connection.subscribe(subjects.telemetry(chosen), cb=bench.on_report)
        yield bench


@contextlib.asynccontextmanager
async def _own_fleet() -> AsyncIterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="trimtab-profile-"))
    try:
        async with Launch(home) as launch:
            await launch.start_hub()
            await launch.start_broker(OWN)
            await launch.ready([OWN])
            yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _delete_leftovers(operator: Operator, home: Path, broker: str) -> None:
    """Delete the topics of a load test that was killed."""
    left = [name for name in (await operator.state()).topics if name.startswith(f"{PREFIX}.")]
    if left:
        async with connect(home, name=PREFIX, home=broker) as client:
            await asyncio.gather(*(client.delete_topic(name) for name in left), return_exceptions=True)


def processes_of(home: Path, broker: str) -> list[int]:
    """The broker's server, stores and agent among this machine's processes."""
    folder = str(home.resolve() / broker)
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if any(word.startswith((f"{folder}/", f"{folder}-store-")) for word in words):
                found.append(int(path.parent.name))
    return sorted(found)
