"""A synchronous connection to a NATS server, with TLS or without, that receives many messages per read."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from trimtab.errors import BadInput
from trimtab.fleet.site.credentials import client_context

if TYPE_CHECKING:
    # Words of the protocol line (MSG or HMSG, subject, subscription, ...), headers or b"", data.
    ReceivedMessage = tuple[list[bytes], bytes, bytes]

PORT: Final = 4222
CONNECT_S: Final = 3.0
SILENCE_S: Final = 10.0  # time without data after which a server that owes a reply counts as gone
RECEIVE_BYTES: Final = 1 << 18
HELLO: Final = {
    "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "version": "1",
    "protocol": 1, "name": "trimtab-pipeline",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    """Address and credentials of a server. With ``ca`` (a PEM file) or tls://, no password is sent without TLS."""

    url: str  # nats://host:port or tls://host:port
    user: str
    password: str = field(repr=False)
    ca: str | None = None
    domain: str | None = None  # JetStream domain, if it is not the server's own

    @property
    def address(self) -> tuple[str, int]:
        try:
            parts = urlsplit(self.url if "://" in self.url else f"nats://{self.url}")
            if parts.scheme in ("nats", "tls") and parts.hostname:
                return parts.hostname, PORT if parts.port is None else parts.port
        except ValueError:
            pass
        raise BadInput(f"'{self.url}' is no address of a server; one looks like nats://host:{PORT}")

    @property
    def wants_tls(self) -> bool:
        return bool(self.ca) or self.url.startswith("tls://")


class Broken(Exception):
    """The connection or the attempt has failed; a new attempt may succeed."""


class Wire:
    """An open connection. Every method raises ``Broken`` or ``OSError`` when the connection is no longer usable."""

    def __init__(self, server: Server, inbox: str) -> None:
        self.inbox = inbox  # prefix of reply subjects, which have one more token
        self.max_payload = 0
        self._host, self._port = server.address
        self._subscriptions = 1  # number so far; the first is for replies
        self._pongs = 0
        self._buffer = b""
        self._missing = 1  # least number of bytes until another message is complete
        self._socket = socket.create_connection((self._host, self._port), CONNECT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(server)
            self._socket.settimeout(SILENCE_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def publish(self, subject: str, reply: str, data: bytes) -> None:
        self.send(b"%b%b\r\n" % (f"PUB {subject} {reply} {len(data)}\r\n".encode(), data))

    def subscribe(self) -> tuple[str, bytes]:
        """Subscribe to a new prefix; returns it (append one token) and the subscription number of its messages."""
        self._subscriptions += 1
        subject = f"{self.inbox}.own.{self._subscriptions}"
        self.send(f"SUB {subject}.* {self._subscriptions}\r\n".encode())
        return subject, b"%d" % self._subscriptions

    def unsubscribe(self, number: bytes) -> None:
        self.send(b"UNSUB %b\r\n" % number)

    def receive(self) -> list[ReceivedMessage]:
        """The messages received; waits for at least one."""
        while True:
            messages = self._parse()
            if messages:
                return messages
            self._fill()

    def _parse(self) -> list[ReceivedMessage]:
        buffer, end, at = self._buffer, len(self._buffer), 0
        messages = []
        self._missing = 1
        while (stop := buffer.find(b"\r\n", at)) >= 0:
            words = buffer[at:stop].split(b" ")
            start = stop + 2
            if words[0] == b"HMSG":
                body = start + int(words[-2])
            elif words[0] == b"MSG":
                body = start
            else:
                self._control(buffer[at:stop])
                at = start
                continue
            stop = start + int(words[-1])
            if stop + 2 > end:
                self._missing = stop + 2 - end
                break
            messages.append((words, buffer[start:body], buffer[body:stop]))
            at = stop + 2
        self._buffer = buffer[at:]
        return messages

    def _fill(self) -> None:
        """Wait for all missing bytes, so that a large message is assembled once, not after every piece."""
        pieces, missing = [self._buffer], self._missing
        while missing > 0:
            piece = self._socket.recv(RECEIVE_BYTES)
            if not piece:
                raise Broken("the server has closed the connection")
            pieces.append(piece)
            missing -= len(piece)
        self._buffer = b"".join(pieces)

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self.send(b"PONG\r\n")
        elif line == b"PONG":
            self._pongs += 1
        elif line.startswith(b"-ERR"):
            error = line[5:].decode(errors="replace").strip("'")
            if "authorization" in error.lower() or "authentication" in error.lower():
                raise BadInput(f"{self._host}:{self._port} refuses this user and password ({error})")
            if "permissions" in error.lower():
                raise BadInput(f"{self._host}:{self._port} does not allow that: {error}")
            raise Broken(error)

    def _greet(self, server: Server) -> None:
        while b"\r\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        if not line.startswith(b"INFO "):
            raise BadInput(f"{self._host}:{self._port} is no NATS server: it sends {line[:40]!r}")
        info = json.loads(line[5:])
        self.max_payload = int(info["max_payload"])
        self._secure(server, info)
        hello = HELLO | ({"user": server.user, "pass": server.password} if server.user else {})
        self.send(f"CONNECT {json.dumps(hello)}\r\nSUB {self.inbox}.* 1\r\nPING\r\n".encode())
        while not self._pongs:
            self._fill()
            self._parse()

    def _secure(self, server: Server, info: dict[str, Any]) -> None:
        """Switch to TLS if the client or the server wants it. Only the server's greeting is plain text then."""
        where = f"{self._host}:{self._port}"
        if not server.wants_tls:
            if info.get("tls_required"):
                raise BadInput(f"{where} wants TLS: give the file of its certificate authority as ca")
            return
        if not (info.get("tls_required") or info.get("tls_available")):
            raise BadInput(f"{where} does not offer TLS, and without TLS no password is sent there")
        context = client_context(server.ca) or ssl.create_default_context()
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        except ssl.SSLCertVerificationError as error:
            raise BadInput(f"the certificate of {where} cannot be trusted: {error.verify_message}") from None
