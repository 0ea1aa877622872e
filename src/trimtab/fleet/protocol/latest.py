"""The last stored message of each of many subjects, with one request per thousand subjects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.fleet.protocol import names, subjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

LISTED: Final = 1_000  # subjects in one request; a server accepts at most 1,024
ANSWER_S: Final = 2.0
THAT_WAS_ALL: Final = "204"
NONE: Final = "404"


async def latest(connection: Nats, stream: str, wanted: Sequence[str]) -> dict[str, Msg]:
    """Wanted subject -> its last message in a stream of the hub; subjects without messages are left out."""
    messages: dict[str, Msg] = {}
    inbox = connection.new_inbox()
    replies = await connection.subscribe(inbox)
    try:
        for at in range(0, len(wanted), LISTED):
            some = wanted[at : at + LISTED]
            question = json.dumps({"multi_last": some, "batch": len(some)}).encode()
            await connection.publish(subjects.direct_get(names.HUB, stream), question, reply=inbox)
            while True:
                reply = await replies.next_msg(ANSWER_S)
                headers = reply.headers or {}
                if status := headers.get("Status"):
                    if status not in (THAT_WAS_ALL, NONE):
                        raise nats.errors.Error(f"the hub answers {status} {headers.get('Description', '')}")
                    break
                messages[headers["Nats-Subject"]] = reply
        return messages
    finally:
        await replies.unsubscribe()
