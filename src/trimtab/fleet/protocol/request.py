"""The base types of requests. A request type declares its verb, the process that answers it, and its reply type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, get_args

import msgspec

from trimtab.fleet.protocol import names, subjects

R = TypeVar("R")


class Done(msgspec.Struct):
    """The reply of an order that returns nothing."""


class Handler(NamedTuple):
    """A request type and the function that answers it. Made by ``Request.answered_by``."""

    request: type[Request[Any]]
    handle: Callable[[Any], Awaitable[Any]]


class Request(msgspec.Struct, Generic[R]):
    """A query or an order; ``R`` is the type of its reply."""

    verb: ClassVar[str]
    changes: ClassVar[bool] = True  # whether carrying it out may change state

    @classmethod
    def subject(cls, broker: str = "") -> str:
        """The subject to send the request to; requests to an agent need its broker."""
        raise NotImplementedError

    @classmethod
    def reply(cls) -> type[R]:
        """The type of its reply, from the class's declaration."""
        (kind,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        return kind  # type: ignore[no-any-return]

    @classmethod
    def answered_by(cls, handle: Callable[[Self], Awaitable[R]]) -> Handler:
        """The handler to pass to ``wire.serve``."""
        return Handler(cls, handle)


class HubRequest(Request[R], Generic[R]):
    """A request to the keeper, from agents and clients."""

    @classmethod
    def subject(cls, broker: str = "") -> str:
        return subjects.ask(names.HUB, cls.verb)


class AgentRequest(Request[R], Generic[R]):
    """A request to the agent of a broker."""

    @classmethod
    def subject(cls, broker: str = "") -> str:
        assert broker, f"{cls.__name__} is asked of a broker"
        return subjects.ask(broker, cls.verb)


class AdminRequest(Request[R], Generic[R]):
    """A request of operators to the keeper, the controller or the process that started brokers."""

    @classmethod
    def subject(cls, broker: str = "") -> str:
        return subjects.admin(cls.verb)
