"""Replies of JetStream's API: a result, a temporary error, or a refusal."""

from __future__ import annotations

from typing import Any, Final

from trimtab.errors import BadInput

NOT_FOUND: Final = 404
# Temporary errors: no leader, another leader, JetStream not up yet, stream offline, too many requests at once.
PASSING: Final = (10008, 10009, 10076, 10118, 10167)


def code(answer: dict[str, Any]) -> int:
    """The code of the error in a reply, 0 if there is none."""
    return int(answer["error"]["code"]) if "error" in answer else 0


def passes(answer: dict[str, Any]) -> bool:
    """Whether the reply is a temporary error."""
    return "error" in answer and answer["error"].get("err_code") in PASSING


def reason(answer: dict[str, Any]) -> str:
    return str(answer["error"].get("description", answer["error"]))


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The reply; raises BadInput if it is an error."""
    if "error" in answer:
        raise BadInput(f"JetStream refuses: {reason(answer)}")
    return answer
