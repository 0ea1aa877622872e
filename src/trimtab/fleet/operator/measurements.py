"""Reads measurements of the whole fleet at the hub, which are stored in parts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import nats.errors

from trimtab.errors import Unreachable
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.snapshots import SnapshotAbout
from trimtab.fleet.protocol.streams import SNAPSHOT
from trimtab.observe.snapshot import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client as Nats

    from trimtab.observe.snapshot import Snapshot


async def newest_snapshot(connection: Nats, newer_than: int = 0) -> tuple[int, Snapshot] | None:
    """The newest measurement and its number, if that is above ``newer_than``."""
    messages = await latest(connection, SNAPSHOT, [subjects.SNAPSHOT_ABOUT])
    if not messages:
        return None
    about = coding.decode(messages[subjects.SNAPSHOT_ABOUT].data, SnapshotAbout)
    if about.number <= newer_than:
        return None
    data = await joined(connection, SNAPSHOT, about.parts)
    if data is None or len(data) != about.bytes:
        return None  # the measurement was replaced while it was read
    return about.number, unpack(data)


async def joined(connection: Nats, stream: str, parts: list[str]) -> bytes | None:
    """The last messages of these subjects, concatenated, if the stream has all of them."""
    messages = await latest(connection, stream, parts)
    return b"".join(messages[part].data for part in parts) if len(messages) == len(parts) else None


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise failures of the hub's storage as ``Unreachable``."""
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        if isinstance(error, Unreachable):
            raise
        raise Unreachable(f"the hub does not answer: {type(error).__name__} {error}".rstrip()) from None
