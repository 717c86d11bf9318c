"""What the real model providers refuse, so that the model server refuses it too.

Each module has the rules of one wire form: the provider's documents, and its error messages as they are reported in
public. Nothing of the product is used here, so that a wrong belief in its code meets another opinion.
"""

from collections.abc import Mapping
from typing import Any

from tests.support.servers.replies import Status
from tests.support.servers.strict.gemini_api import check_gemini
from tests.support.servers.strict.messages_api import check_messages
from tests.support.servers.strict.openai_chat import check_chat
from tests.support.servers.strict.openai_responses import check_responses
from tests.support.servers.strict.refused import Refused

__all__ = ["refusal_of"]


def refusal_of(path: str, headers: Mapping[str, str], body: dict[str, Any], size_bytes: int) -> Status | None:
    """Return the error that a request gets; None if it is valid."""
    try:
        if path.endswith("/chat/completions"):
            check_chat(body)
        elif ":streamGenerateContent" in path:
            check_gemini(body)
        elif path.endswith("/responses"):
            check_responses(body)
        elif path.partition("?")[0].endswith("/messages"):
            check_messages(body, headers, size_bytes)
    except Refused as refused:
        return Status(refused.status, refused.type, refused.message, detail=refused.code)
    return None
