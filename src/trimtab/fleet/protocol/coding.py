"""The one encoder of all messages and stored records: JSON, compressed if it is large.

A request and a reply travel in an envelope, ``[VERSION, BODY]`` or ``[VERSION, null, FAILURE]``, whose form is the same
in all versions of the protocol. Reports, changes of the registry and stored records are read by several versions and by
Spark, so they are plain objects. A reader ignores fields that it does not know, and refuses a message without a field
that it needs, naming the field's path.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from trimtab.errors import BadInput, TooLarge, TrimtabError, Unreachable, VersionMismatch, travelled
from trimtab.observe.report import decode_hook, encode_hook

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1  # protocol version; changes whenever an old process would misunderstand a new one
MAX_MESSAGE: Final = 1 << 20  # bytes; servers are configured to take no more
MAX_UNPACKED: Final = 1 << 28  # bytes that a compressed message may grow to
LARGE: Final = 1 << 16  # bytes; a larger message is compressed
PACKED: Final = b"\x78"  # the first byte of a compressed message, which no JSON begins with
_ENCODER: Final = msgspec.json.Encoder(enc_hook=encode_hook)


class Failure(msgspec.Struct):
    """An error in a reply, to be raised in the process that sent the request: see ``errors.travelled``."""

    kind: str
    text: str
    fields: dict[str, Any] = {}


class _Envelope(msgspec.Struct, array_like=True):
    version: int
    body: msgspec.Raw = msgspec.Raw(b"null")
    failure: Failure | None = None


def to_json(value: Any) -> bytes:
    """JSON of any size, for files and for parts of messages."""
    return _ENCODER.encode(value)


def encode(value: Any) -> bytes:
    """A message: any declared type, or a value of plain JSON."""
    data = _ENCODER.encode(value)
    if len(data) > LARGE:
        data = zlib.compress(data, 1)
    if len(data) > MAX_MESSAGE:
        raise TooLarge(f"a message of {len(data):,} bytes is over the limit of {MAX_MESSAGE:,}")
    return data


def plain(value: Any) -> Any:
    """A declared type as objects, lists, text and numbers, as ``json.loads(encode(value))`` would give it."""
    return msgspec.to_builtins(value, enc_hook=encode_hook)


def from_plain(value: Any, kind: type[T]) -> T:
    """The opposite of ``plain``."""
    try:
        return msgspec.convert(value, kind, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """The value of a message. Raises ``BadInput`` if the message is not of this type."""
    if isinstance(data, bytes) and data[:1] == PACKED:
        data = _unpacked(data)
    try:
        decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"this is not JSON: {error}") from None


def _refusal(error: msgspec.ValidationError) -> TrimtabError:
    """The error to raise. If a type's own check refused the value, this is the type's error."""
    cause = error.__cause__
    return cause if isinstance(cause, TrimtabError) else BadInput(str(error))


@cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind, dec_hook=decode_hook)


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        unpacked = unpacking.decompress(data, MAX_UNPACKED)
    except zlib.error as error:
        raise BadInput(f"a compressed message cannot be read: {error}") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise BadInput(f"a compressed message is cut off, or grows to more than {MAX_UNPACKED:,} bytes")
    return unpacked


def encode_message(body: Any) -> bytes:
    """A request, or the reply to one."""
    return encode((VERSION, body))


def encode_failure(error: BadInput | Unreachable) -> bytes:
    fields: Mapping[str, Any] = {name: getattr(error, name) for name in error.fields}
    return encode((VERSION, None, Failure(error.kind, str(error), dict(fields))))


def decode_request(data: bytes, kind: type[T]) -> T:
    envelope = decode(data, _Envelope)
    if envelope.version != VERSION:
        older = "asking" if envelope.version < VERSION else "answering"
        raise VersionMismatch(_mismatch("request", envelope.version, "answers", older), envelope.version)
    return decode(envelope.body, kind)


def decode_reply(data: bytes, kind: type[T]) -> T:
    """The reply. An error that was sent in its place is raised."""
    envelope = decode(data, _Envelope)
    if envelope.failure is not None:
        raise travelled(envelope.failure.kind, envelope.failure.text, envelope.failure.fields)
    if envelope.version != VERSION:
        older = "answering" if envelope.version < VERSION else "asking"
        raise VersionMismatch(_mismatch("reply", envelope.version, "asks", older), envelope.version)
    return decode(envelope.body, kind)


def _mismatch(what: str, version: int, does: str, older: str) -> str:
    return (
        f"the {what} is of protocol version {version}, but this process {does} in version {VERSION}: "
        f"the {older} process is older and must be updated"
    )
