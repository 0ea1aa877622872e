"""The ledger of executions, kept at the hub: an execution is recorded before it begins and when it is done.

An entry holds everything that its execution depends on: the publications, the version of the subscriptions, the time.
An execution that was interrupted at any point can therefore be repeated with the same results, without any state on
Spark's own disk.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trimtab.fleet.protocol import subjects
from trimtab.fleet.protocol.streams import LEDGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.pipeline.nats.jetstream import JetStream

Positions = dict[str, int]  # stream -> sequence


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a channel. An execution that is not ``done`` is to be repeated."""

    number: int
    after: dict[str, Positions]  # feed -> last publication of earlier executions
    upto: dict[str, Positions]  # feed -> last publication of this execution
    datasets: dict[str, Positions] = field(default_factory=dict)  # feed -> last publication that its datasets contain
    version: int = 0  # version of the subscriptions
    at: str = ""  # scheduled time, used in the query and the results
    results: int = 0  # last sequence of the results stream at the beginning of the execution
    done: bool = True
    left_out: int = 0  # rows of all executions so far that were too large to be sent
    reason: str = ""  # why the last such row was left out

    def fitting(self, feeds: Mapping[str, Positions], datasets: Mapping[str, Positions]) -> Execution:
        """Adapt the entry to the feeds that the channel reads now, and to the ends of their streams.

        Positions are capped at the end of the stream, since a stream may have been created anew.
        """

        def within(positions: Mapping[str, Positions], last: Mapping[str, Positions]) -> dict[str, Positions]:
            return {
                feed: {stream: min(positions.get(feed, {}).get(stream, end), end) for stream, end in ends.items()}
                for feed, ends in last.items()
            }

        return replace(
            self, after=within(self.after, feeds), upto=within(self.upto, feeds),
            datasets=within(self.datasets, datasets),
        )  # fmt: skip


@dataclass(slots=True)
class Ledger:
    """The newest entry of every channel and feed."""

    app: str
    channels: dict[str, Execution] = field(default_factory=dict)
    stored: dict[str, Positions] = field(default_factory=dict)  # feed -> last message on disk

    @classmethod
    def read(cls, jetstream: JetStream, app: str) -> Ledger:
        ledger = cls(app)
        state = jetstream.info(LEDGER)
        for rows in jetstream.read(LEDGER, state.first, state.last):
            for subject, data in zip(rows.subject, rows.data, strict=True):
                _, owner, kind, name = subject.decode().split(".")
                if owner == app:
                    ledger._take(kind, name, json.loads(data))
        return ledger

    def _take(self, kind: str, name: str, entry: dict[str, Any]) -> None:
        if kind == "channel":
            self.channels[name] = Execution(**entry)
        else:
            self.stored[name] = entry["stored"]

    def write_channel(self, jetstream: JetStream, name: str, execution: Execution) -> None:
        self._write(jetstream, "channel", name, asdict(execution))
        self.channels[name] = execution

    def write_stored(self, jetstream: JetStream, feed: str, stored: Positions) -> None:
        self._write(jetstream, "feed", feed, {"stored": stored})
        self.stored[feed] = stored

    def _write(self, jetstream: JetStream, kind: str, name: str, entry: dict[str, Any]) -> None:
        data = json.dumps(entry).encode()
        jetstream.publish([(subjects.ledger(self.app, kind, name), data, secrets.token_hex(12))])
