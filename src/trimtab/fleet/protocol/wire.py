"""Connections to nats-server, and requests in JSON between the parts of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import zlib
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors
from nats.aio.client import Client as Nats

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.site.credentials import client_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.msg import Msg

log = logging.getLogger("trimtab.wire")
FOREVER: Final = -1
LARGE: Final = 1 << 16  # bytes that are sent as they are
PACKED: Final = b"\x78"  # what is packed begins so, and JSON does not
CLOSE_S: Final = 5.0  # limit of closing a connection, if its server does not read
PENDING_BYTES: Final = 8 * 1024 * 1024  # kept for a server that is away


async def connect(
    servers: Sequence[str],
    user: str,
    password: str,
    *,
    name: str,
    ca: str | None = None,
    wait_s: float = 3.0,
    on_error: Callable[[Exception], Awaitable[None]] | None = None,
    on_closed: Callable[[], Awaitable[None]] | None = None,
) -> Nats:
    """A connection to the first of ``servers`` that answers; once it has been made, it comes back by itself for ever.

    To that one only: nats-py would go on to any other of those it was told of, and nobody would know where it is.
    """
    last: list[Exception] = []

    async def heard(error: Exception) -> None:
        last.append(error)
        del last[:-3]
        if on_error is not None:
            await on_error(error)

    options: dict[str, Any] = {
        "user": user,
        "password": password,
        "name": name,
        "error_cb": heard,
        "reconnect_time_wait": 0.25,
        "connect_timeout": 2,
        "ping_interval": 5,
        "max_outstanding_pings": 3,
        "pending_size": PENDING_BYTES,
        "dont_randomize": True,
        "skip_subject_validation": True,  # names are checked where they come in, not at every message
    }
    if ca:
        options["tls"] = client_context(ca)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    for attempt in itertools.count(1):
        connection, server = Nats(), servers[(attempt - 1) % len(servers)]
        try:
            await connection.connect(**options, servers=[server], max_reconnect_attempts=1, allow_reconnect=False)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            with contextlib.suppress(Exception):  # nats-py leaves the socket open
                await tasks.within(1.0, connection.close())
            if connection._transport is not None:
                connection._transport.close()
            shown = last[-1] if last else error
            if _denied(error) or _denied(shown):
                raise BadInput(
                    f"{_plain([server])} refuses these credentials; take the client or fleet file of this fleet"
                ) from None
            if attempt % len(servers):
                continue
            if loop.time() >= deadline:
                raise Unreachable(f"nothing answers at {_plain(servers)}: {shown or type(error).__name__}") from None
            await asyncio.sleep(0.05)
        else:
            connection.options["allow_reconnect"] = True
            connection.options["max_reconnect_attempts"] = FOREVER
            connection._closed_cb = on_closed
            return connection
    raise AssertionError("it goes on until it returns or raises")


async def close(connection: Nats) -> None:
    """For good. nats-py stops half-way if the server is gone, and leaves the tasks of subscriptions behind."""
    subscriptions = list(connection._subs.values())
    with contextlib.suppress(Exception):
        await tasks.within(CLOSE_S, connection.close())
    waiting: list[Any] = [each._wait_for_msgs_task for each in subscriptions]
    await tasks.end(*(task for task in waiting if task is not None))


def _denied(error: Exception) -> bool:
    return "authorization" in str(error).lower() or isinstance(error, nats.errors.AuthorizationError)


def _plain(servers: Sequence[str]) -> str:
    return ", ".join(server.split("//")[-1].rsplit("@", 1)[-1] for server in servers)


def server_name(connection: Nats) -> str:
    """Which broker (or hub) a connection has reached."""
    return str(connection._server_info.get("server_name", ""))


def packed(said: dict[str, Any]) -> bytes:
    """As JSON; compressed if it is large, for a message has a megabyte at the most."""
    data = json.dumps(said).encode()
    return zlib.compress(data, 1) if len(data) > LARGE else data


def unpacked(data: bytes | None) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(zlib.decompress(data) if data and data[:1] == PACKED else data or b"{}")
    return said


async def ask(connection: Nats, subject: str, question: dict[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
    """A request in JSON. What the other side refuses is raised as ``BadInput``."""
    try:
        reply = await connection.request(subject, json.dumps(question).encode(), timeout=timeout_s)
    except nats.errors.NoRespondersError:
        raise Unreachable(f"nobody answers to '{subject}': is that part of the fleet running?") from None
    except (TimeoutError, nats.errors.TimeoutError):
        raise Unreachable(f"no answer to '{subject}' within {timeout_s:g} s") from None
    except (nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError) as error:
        raise Unreachable(f"'{subject}' cannot be asked: {error}") from None
    answer = unpacked(reply.data)
    if "error" in answer:
        raise BadInput(str(answer["error"]))
    return answer


def answering(
    handle: Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]],
) -> Callable[[Msg], Awaitable[None]]:
    """A subscription callback that answers requests, each in a task of its own; errors become answers."""
    running = tasks.Background("an answer", log)

    async def answer(message: Msg) -> None:
        try:
            question = json.loads(message.data or b"{}")
            if not isinstance(question, dict):
                raise BadInput(f"a request is a JSON object, but this came: {message.data[:60]!r}")
            reply = await handle(question) or {}
        except BadInput as error:
            reply = {"error": str(error), "kind": type(error).__name__}
        except (ValueError, KeyError, TypeError) as error:
            reply = {"error": f"the request was not understood: {type(error).__name__} {error}"}
        except (nats.errors.Error, OSError, TimeoutError) as error:  # a server in the middle of a restart, say
            log.warning("%s: %r", message.subject, error)
            reply = {"error": f"it cannot be done just now: {type(error).__name__} {error}"}
        if message.reply:
            await message.respond(packed(reply))

    async def spawn(message: Msg) -> None:
        running.start(answer(message))

    return spawn
