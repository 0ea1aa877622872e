"""Messages of a measurement of the whole fleet: its parts, and an index message that lists the newest parts."""

from __future__ import annotations

from typing import Final

import msgspec

from trimtab.fleet.protocol import coding, subjects
from trimtab.observe.snapshot import in_parts

SLOTS: Final = 3  # measurements kept at a time, so that none is replaced while it is read


class SnapshotAbout(msgspec.Struct):
    number: int  # grows from one measurement to the next
    parts: list[str]  # subjects
    bytes: int  # of all parts together


def messages(number: int, data: bytes) -> list[tuple[str, bytes]]:
    """Subjects and contents to publish, in this order."""
    parts = in_parts(data)
    named = [subjects.snapshot_part(number % SLOTS, at) for at in range(len(parts))]
    about = SnapshotAbout(number, named, len(data))
    return [*zip(named, parts, strict=True), (subjects.SNAPSHOT_ABOUT, coding.encode(about))]
