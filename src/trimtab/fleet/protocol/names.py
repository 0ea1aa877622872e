"""The names that topics, clients and brokers may have."""

from __future__ import annotations

import re
from typing import Final

from trimtab.errors import BadInput

_WORD = r"[A-Za-z0-9_-]+"
_TOPIC = re.compile(rf"{_WORD}(\.{_WORD})*")
_NAME = re.compile(_WORD)
_INBOX = re.compile(rb"_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}")
MAX_TOPIC: Final = 200
MAX_NAME: Final = 64
_PART: Final = re.compile(r"-(agent|store-\d+)$")
STOCK: Final = "stock-"  # before a broker's name: all plain NATS and MQTT clients of the broker
HUB: Final = "hub"  # the hub's name among the brokers, and its JetStream domain


def topic_name(name: str) -> str:
    """``name`` itself, if a topic may be called so."""
    if not isinstance(name, str) or len(name) > MAX_TOPIC or not _TOPIC.fullmatch(name):
        raise BadInput(
            f"a topic is called by words of letters, digits, '_' and '-' with dots between them, "
            f"{MAX_TOPIC} characters at most, but this came: {_shown(name)}"
        )
    return name


def client_name(name: str) -> str:
    if isinstance(name, str) and name.startswith(STOCK):
        raise BadInput(f"'{name}': names that begin with '{STOCK}' are reserved for plain NATS clients; choose another")
    return plain_name("client", name)


def channel_name(name: str) -> str:
    return plain_name("channel", name)


def reader_name(name: str) -> str:
    return plain_name("durable reader", name)


def broker_name(name: str) -> str:
    if name == HUB:
        raise BadInput(f"a broker cannot be called '{HUB}': that is the hub's name")
    if isinstance(name, str) and _PART.search(name):
        of, part = _PART.sub("", name), "the agent" if name.endswith("-agent") else "a store"
        raise BadInput(f"'{name}' is reserved for {part} of broker '{of}'; choose another broker name")
    return plain_name("broker", name)


def plain_name(kind: str, name: str) -> str:
    """``name`` itself, if a ``kind`` of thing may be called so."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadInput(
            f"a {kind} is called by letters, digits, '_' and '-', {MAX_NAME} at most, but this came: {_shown(name)}"
        )
    return name


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}..."


def inbox(data: bytes) -> str | None:
    """The reply subject in a probe's data, if it has the form of a client's inbox."""
    match = _INBOX.fullmatch(data)
    return match.group().decode() if match else None


def stream(topic: str) -> str:
    """The JetStream stream of a persistent topic: stream names have no dots, topic names no '='."""
    return topic.replace(".", "=")


def stream_topic(stream: str) -> str:
    """The topic of such a stream."""
    return stream.replace("=", ".")
