"""Connections to nats-server, and requests between the processes of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import nats
import nats.errors
from nats.aio.client import Client as Nats

from trimtab.errors import BadInput, NoAnswer, Unreachable, VersionMismatch
from trimtab.fleet import tasks
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.site.credentials import client_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from trimtab.fleet.protocol.request import Handler, Request

    R = TypeVar("R")

log = logging.getLogger("trimtab.wire")
FOREVER: Final = -1
UNSUBSCRIBE_S: Final = 10.0  # limit for the confirmation that subscriptions have ended; then messages may be lost
CONFIRM_S: Final = 10.0  # limit for the confirmation of what was sent: that of nats-py's flush
CLOSE_S: Final = 5.0  # limit of closing a connection, if its server does not read
# Bytes of the fleet's own traffic that this process has exchanged with other processes; ``clients`` is the part of
# ``bytes`` that requests of clients cause.
CROSSED: Final[Counter[str]] = Counter(bytes=0, clients=0)
REASON: Final = 100  # most characters of another program's error in a message of ours
PENDING_BYTES: Final = 8 * 1024 * 1024  # limit of outgoing bytes buffered while the server is unreachable


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out what asyncio logs whenever a TLS connection of nats-py ends; it has no effect and no remedy."""
    return "eof_received() has no effect when using ssl" not in str(record.msg)


class Counted:
    """A connection whose requests and replies count as the fleet's own traffic. Everything else is the connection's."""

    def __init__(self, connection: Nats) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def request(self, subject: str, payload: bytes = b"", **options: Any) -> Msg:
        reply = await self._connection.request(subject, payload, **options)
        CROSSED["bytes"] += len(payload) + len(reply.data)
        return reply


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
    """Connect to the first of ``servers`` that answers. A lost connection is made again without a limit of attempts.

    It reconnects to the same server only. Given several servers, nats-py would switch to any of them unnoticed.
    """
    last: list[Exception] = []

    async def note_error(error: Exception) -> None:
        last.append(error)
        del last[:-3]
        if on_error is not None:
            await on_error(error)

    options: dict[str, Any] = {
        "user": user,
        "password": password,
        "name": name,
        "error_cb": note_error,
        "reconnect_time_wait": 0.25,
        "connect_timeout": 2,
        "ping_interval": 5,
        "max_outstanding_pings": 3,
        "pending_size": PENDING_BYTES,
        "dont_randomize": True,
        "skip_subject_validation": True,  # names are checked where they are passed in, not at every message
    }
    if ca:
        options["tls"] = client_context(ca)
        logging.getLogger("asyncio").addFilter(_is_ours)
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
                raise NoAnswer(f"nothing answers at {_plain(servers)}: {shown or type(error).__name__}") from None
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            if connection._transport is not None:
                connection._transport.close()
            raise
        else:
            connection.options["allow_reconnect"] = True
            connection.options["max_reconnect_attempts"] = FOREVER
            connection._closed_cb = on_closed
            return connection
    raise AssertionError("the loop ends only by return or by an error")


async def close(connection: Nats) -> None:
    """Close a connection for good. nats-py's own ``close`` leaves subscription tasks behind if the server is gone."""
    subscriptions = list(connection._subs.values())
    with contextlib.suppress(Exception):
        await tasks.within(CLOSE_S, connection.close())
    waiting: list[Any] = [subscription._wait_for_msgs_task for subscription in subscriptions]
    await tasks.end(*(task for task in waiting if task is not None))


async def ping(connection: Nats, limit_s: float) -> float:
    """The seconds until the server answers a PING. Raises ``TimeoutError`` if it does not, or the connection is lost.

    nats-py's own ``flush`` leaves a cancelled future behind when it is given up. The answer to that PING would end the
    task that reads from the connection.
    """
    if not connection.is_connected:
        raise TimeoutError("the connection is lost")
    reconnects, began = connection.stats["reconnects"], time.perf_counter()
    answered = asyncio.get_running_loop().create_future()
    await connection._send_ping(answered)
    done, _ = await asyncio.wait({answered}, timeout=limit_s)  # does not cancel it
    if not done or not connection.is_connected or connection.stats["reconnects"] != reconnects:
        raise TimeoutError(f"the server has not answered within {limit_s:g} s")
    return time.perf_counter() - began


async def confirmed(connection: Nats, limit_s: float = CONFIRM_S) -> None:
    """Wait until the server has handled everything sent so far; ``TimeoutError`` after ``limit_s``.

    Returns at once while the connection is lost: nats-py repeats subscriptions when it is made again.
    """
    if connection.is_connected:
        await ping(connection, limit_s)


async def unsubscribe(subscriptions: Sequence[Subscription]) -> None:
    """End subscriptions of one connection at the server. Messages that have arrived are still handled: see ``handled``.

    nats-py's own ``drain`` leaves a subscription behind if the server is unreachable, and makes it again later.
    """
    if not subscriptions:
        return
    connection: Nats = subscriptions[0]._conn
    try:
        with contextlib.suppress(nats.errors.Error, OSError):  # a server that is gone has ended them
            if connection.is_connected:
                for subscription in subscriptions:
                    await connection._send_unsubscribe(subscription._id)
                await ping(connection, UNSUBSCRIBE_S)
    finally:
        for subscription in subscriptions:
            connection._remove_sub(subscription._id)


async def handled(subscriptions: Sequence[Subscription]) -> None:
    """Wait until the messages of ended subscriptions are handled, then end the tasks that handle them."""
    try:
        for subscription in subscriptions:
            queue = asyncio.ensure_future(subscription._pending_queue.join())
            handling = subscription._wait_for_msgs_task
            try:
                await asyncio.wait([queue, *([handling] if handling else [])], return_when=asyncio.FIRST_COMPLETED)
            finally:
                queue.cancel()
    finally:
        working: list[Any] = [subscription._wait_for_msgs_task for subscription in subscriptions]
        await tasks.end(*(task for task in working if task is not None))


def _denied(error: Exception) -> bool:
    """Whether the server has denied access. nats-py does not always use its class for this, so the text is checked."""
    return "authorization" in str(error).lower() or isinstance(error, nats.errors.AuthorizationError)


def _plain(servers: Sequence[str]) -> str:
    return ", ".join(server.split("//")[-1].rsplit("@", 1)[-1] for server in servers)


def server_name(connection: Nats) -> str:
    """Name of the broker (or hub) that a connection has reached."""
    return str(connection._server_info.get("server_name", ""))


async def ask(connection: Nats, request: Request[R], timeout_s: float = 5.0, *, broker: str = "") -> R:
    """Send a request and return the reply; an error reply is raised. ``broker`` names the agent of agent requests."""
    subject = request.subject(broker)
    data = coding.encode_message(request)
    try:
        reply = await connection.request(subject, data, timeout=timeout_s)
    except nats.errors.NoRespondersError:
        raise NoAnswer(f"nobody answers to '{subject}': is {subjects.answered_by(subject)} running?") from None
    except (TimeoutError, nats.errors.TimeoutError):
        doubt = ", and it may have been carried out" if request.changes else ""
        process = subjects.answered_by(subject)
        text = f"no answer of {process} to '{subject}' within {timeout_s:g} s{doubt}"
        raise NoAnswer(text, changed=request.changes) from None
    except (nats.errors.ConnectionClosedError, nats.errors.OutboundBufferLimitError) as error:
        raise NoAnswer(f"'{subject}' cannot be asked: {error}") from None
    CROSSED["bytes"] += len(data) + len(reply.data)
    return coding.decode_reply(reply.data, request.reply())


async def tell(connection: Nats, request: Request[Any], *, broker: str = "") -> None:
    """Send a request without waiting for a reply; the caller does not learn whether it was carried out."""
    await connection.publish(request.subject(broker), coding.encode_message(request))


async def serve(
    connection: Nats, handlers: Iterable[Handler], *, broker: str = "", of_clients: bool = False
) -> list[Subscription]:
    """Answer requests, each in a task of its own; an agent names its ``broker``, and says which are ``of_clients``."""
    return [
        await connection.subscribe(
            handler.request.subject(broker), cb=_answering(handler.request, handler.handle, of_clients)
        )
        for handler in handlers
    ]


def _answering(
    kind: type[Request[Any]], handle: Callable[[Any], Awaitable[Any]], of_clients: bool
) -> Callable[[Msg], Awaitable[None]]:
    running = tasks.Background("an answer", log)

    async def answer(message: Msg) -> None:
        try:
            reply = coding.encode_message(await _handled(message, kind, handle))
        except (BadInput, Unreachable) as error:
            reply = coding.encode_failure(error)
        size = len(message.data) + (len(reply) if message.reply else 0)
        CROSSED["bytes"] += size
        CROSSED["clients"] += size if of_clients else 0
        if message.reply:
            await message.respond(reply)

    async def spawn(message: Msg) -> None:
        running.start(answer(message))

    return spawn


async def _handled(message: Msg, kind: type[Request[Any]], handle: Callable[[Any], Awaitable[Any]]) -> Any:
    try:
        request = coding.decode_request(message.data, kind)
    except VersionMismatch:
        raise
    except BadInput as error:
        raise BadInput(f"the request '{message.subject}' was not understood: {error}") from None
    try:
        return await handle(request)
    except (BadInput, Unreachable):
        raise
    except (nats.errors.Error, OSError, TimeoutError) as error:  # for example, a server is restarting
        log.warning("%s: %r", message.subject, error)
        reason = (str(error).splitlines() or [type(error).__name__])[0][:REASON]
        raise Unreachable(f"it cannot be done just now: {reason}", changed=kind.changes) from None
    except Exception as error:  # a fault of this process; the caller should not wait until its timeout
        log.exception("%s failed", message.subject)
        raise BadInput(f"'{message.subject}' failed: {type(error).__name__} {error}") from None
