"""Checks of the SDK's arguments: each refuses a wrong value in one sentence, before anything is sent or counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Final, TypeVar

from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.hosting import Expected
from trimtab.fleet.protocol.types import is_text, shown
from trimtab.fleet.sdk.delivery import Delivery
from trimtab.fleet.sdk.results import ChannelSubscription
from trimtab.observe.coordinates.node import MOST_RTT_MS

T = TypeVar("T")
SETTINGS: Final = tuple(name for name in Topic.__struct_fields__ if name != "name")
EXPECTED: Final = Expected.__struct_fields__  # settings that only help to choose the topic's broker
MOST_BITS: Final = 1024  # size limit of an integer that is a channel's parameter


def payload(data: object) -> bytes:
    """The bytes of a message."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise BadInput("a message cannot be text with lone surrogates: UTF-8 has no bytes for them") from None
    if isinstance(data, (bytes, bytearray, memoryview)):
        try:
            return bytes(data)
        except ValueError as error:  # a memoryview that was released
            raise BadInput(f"the bytes of the message cannot be read: {error}") from None
    raise BadInput(f"a message is bytes or text, but this came: {shown(data)}")


def position(value: object) -> tuple[float, float]:
    """A latitude and a longitude in degrees."""
    try:
        latitude, longitude = (_degrees(number) for number in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        latitude = longitude = math.nan
    if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
        raise BadInput(
            "a position is a latitude from -90 to 90 and a longitude from -180 to 180 degrees, "
            f"but this came: {_pair(value)}"
        )
    return latitude, longitude


def _degrees(value: object) -> float:
    if isinstance(value, (bool, str, bytes, bytearray)):  # float() would read a number from text
        raise TypeError
    return float(value)  # type: ignore[arg-type]


def _pair(value: object) -> str:
    if isinstance(value, (tuple, list)) and len(value) <= 3:
        return f"({', '.join(shown(number) for number in value)})"
    return shown(value)


def callback(value: T) -> T:
    """A function or an object that can be called with a message or a result."""
    if not callable(value):
        raise BadInput(f"a callback is a function or a coroutine function, but this came: {shown(value)}")
    return value


def pending(value: object) -> int:
    """How many messages may wait for a callback."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"pending is a whole number of messages, 1 or more, but this came: {shown(value)}")
    return value


def seconds(value: object) -> float:
    """A limit of time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
        raise BadInput(f"a timeout is a number of seconds above 0, but this came: {shown(value)}")
    return float(value)


def access_ms(value: object) -> float:
    """The round-trip time between a client and its gateway."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= MOST_RTT_MS:
        raise BadInput(
            f"access_ms is the round-trip time to the gateway, from 0 to {MOST_RTT_MS:,.0f} ms, "
            f"but this came: {shown(value)}"
        )
    return float(value)


def interval(value: object) -> float:
    """Seconds between explorations; 0: never."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
        raise BadInput(f"explore_s is a number of seconds, or 0 for never, but this came: {shown(value)}")
    return float(value)


def subscription(value: object) -> Delivery:
    if not isinstance(value, Delivery):
        raise BadInput(f"a subscription is what subscribe returns, but this came: {shown(value)}")
    return value


def channel_subscription(value: object) -> ChannelSubscription:
    if not isinstance(value, ChannelSubscription):
        raise BadInput(f"a subscription to a channel is what subscribe_channel returns, but this came: {shown(value)}")
    return value


def listed(value: Iterable[T], what: str) -> list[T]:
    """A list of something, from any iterable but text and mappings."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise BadInput(f"{what} are given as a list, but this came: {shown(value)}")
    return list(value)


def topic(name: str, settings: dict[str, Any]) -> Topic:
    """A topic with these settings; its broker is empty if the settings name none."""
    for setting in settings:
        if setting not in (*SETTINGS, *EXPECTED):
            raise UnknownName("setting of a topic", setting, (*SETTINGS, *EXPECTED))
    own = {setting: value for setting, value in settings.items() if setting in SETTINGS}
    return Topic(name, **({"broker": ""} | own))


def expected(settings: dict[str, Any]) -> Expected | None:
    """The expected traffic among the settings of a topic."""
    given = {setting: settings[setting] for setting in EXPECTED if settings.get(setting) is not None}
    if given and len(given) < len(EXPECTED):
        raise BadInput(f"expected traffic is given as {' and '.join(EXPECTED)}, but only {', '.join(given)} came")
    return Expected(**given) if given else None


def wanted_channel(value: object) -> tuple[str, Any, dict[str, Any]]:
    """Channel, callback and parameters of one subscription."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise BadInput(f"a subscription to a channel is (channel, callback, parameters), but this came: {shown(value)}")
    channel, function, params = value
    names.channel_name(channel)
    if function is not None:
        callback(function)
    if not isinstance(params, Mapping):
        raise BadInput(f"parameters of channel '{channel}' are a mapping by name, but this came: {shown(params)}")
    for name, argument in params.items():
        if not isinstance(name, str) or not is_text(name):
            raise BadInput(f"a parameter of channel '{channel}' is named by text, but this came: {shown(name)}")
        huge = isinstance(argument, int) and argument.bit_length() > MOST_BITS
        if huge or not isinstance(argument, (str, int, float, date)):
            raise BadInput(
                f"parameter '{name}' of channel '{channel}' must be text, a number of at most {MOST_BITS} bits, "
                f"true or false, a date or a time, but this came: {shown(argument)}"
            )
    return channel, function, dict(params)


def addresses(value: object) -> dict[str, str]:
    """URLs by broker."""
    if not isinstance(value, Mapping):
        raise BadInput(f"addresses are URLs by broker, but this came: {shown(value)}")
    for broker, url in value.items():
        names.broker_name(broker)
        if not isinstance(url, str) or not url:
            raise BadInput(f"the address of broker '{broker}' is a URL such as nats://host:4222, not {shown(url)}")
    return dict(value)
