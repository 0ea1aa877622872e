"""Prepares the hub for a pipeline: streams for its feeds, the ledger, and the declaration of its channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nats.js.api import DiscardPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from trimtab.fleet import tasks
from trimtab.fleet.protocol import subjects, wire
from trimtab.fleet.protocol.admin_verbs import DeclareChannels
from trimtab.fleet.protocol.entries import ChannelEntry
from trimtab.fleet.protocol.streams import LEDGER
from trimtab.fleet.protocol.subjects import ANY
from trimtab.fleet.site.launch import admin_connection
from trimtab.pipeline.feeds import streams_of
from trimtab.pipeline.nats.wire import Server

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.fleet.site.credentials import Fleet
    from trimtab.pipeline.manifest import App

MOST_BYTES: Final = 8 << 30  # size limit of a feed's stream at the hub


def server_of(fleet: Fleet) -> Server:
    return Server(fleet.hub, "fleet", fleet.fleet, fleet.tls.ca if fleet.tls else None)


async def reach(fleet: Fleet) -> None:
    """Check that the hub answers and accepts our credentials, before a long start."""
    await wire.close(await admin_connection(fleet))


def prepare(fleet: Fleet, app: App) -> None:
    """Create or update streams, ledger and channels; safe to repeat."""
    tasks.run(_prepare(fleet, app))


async def _prepare(fleet: Fleet, app: App) -> None:
    ca = fleet.tls.ca if fleet.tls else None
    connection = await wire.connect([fleet.hub], "fleet", fleet.fleet, name="trimtab:pipeline", ca=ca, wait_s=10.0)
    try:
        for feed in app.feeds.values():
            for stream, subject in streams_of(feed, app.name).items():
                # Publishers to topics expect no acknowledgement, and none may be sent: the reply subject of such a
                # message carries its identity.
                await _make(connection, StreamConfig(
                    name=stream, subjects=[subject], storage=StorageType.FILE, allow_direct=True,
                    no_ack=bool(feed.topics), max_age=feed.retention_s, max_bytes=MOST_BYTES,
                    discard=DiscardPolicy.OLD,
                ))  # fmt: skip
        await _make(connection, StreamConfig(
            name=LEDGER, subjects=[subjects.ledger(ANY, ANY, ANY)], storage=StorageType.FILE, max_msgs_per_subject=1,
            allow_direct=True,
        ))  # fmt: skip
        channels = {
            name: ChannelEntry(app.name, dict(channel.parameters), channel.period_s, channel.retention_s)
            for name, channel in app.channels.items()
        }
        await wire.ask(connection, DeclareChannels(app.name, channels), 30.0)
    finally:
        await wire.close(connection)


async def _make(connection: Nats, config: StreamConfig) -> None:
    jetstream = connection.jetstream()
    try:
        current = (await jetstream.stream_info(config.name or "")).config
    except NotFoundError:
        await jetstream.add_stream(config)
        return
    if config.max_age is not None and current.max_age is not None:  # another feed of the topic may keep it longer
        config.max_age = max(config.max_age, current.max_age)
    await jetstream.update_stream(config)
