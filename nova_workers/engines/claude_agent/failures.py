"""Maps errors that the program reports to the engine contract's failures."""

from typing import Final

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import ContentBlock, JsonObject, text_of
from nova_workers.engines import bounds
from nova_workers.engines.programs.failures import reported
from nova_workers.engines.turn import ContentRefused
from nova_workers.engines.verdicts import OUT_OF_ORDER, OVERFLOW, RATE_LIMITED, REFUSED, VerdictTable, pattern

_VERDICTS: Final = VerdictTable(
    first=((pattern(r"prompt is too long|context (window|limit)|too many tokens"), OVERFLOW),),
    words=(
        (pattern(r"not logged in|invalid api key|/login|authenticat"), REFUSED),
        (pattern(r"rate.?limit"), RATE_LIMITED),
        (pattern(r"overloaded|api error|connection|timed? ?out|stream"), OUT_OF_ORDER),
    ),
)
_MEDIA_ERRORS = {"media_removed": None, "pdf_too_large": "document", "pdf_password_protected": "document"}
"""The program's names of the errors after which it omits a block from its own requests, and the kind of the block if
the name states it."""


def failure_of(result: JsonObject) -> EngineFailure:
    """Return the failure in a result message: an `AttemptFailed` if it is the provider's."""
    message, status = _message_of(result), result.get("api_error_status")
    return reported(message, _reported(message), _VERDICTS, status=status if isinstance(status, int) else None)


def is_media_refusal(message: JsonObject) -> bool:
    """Return whether the program reports that it omits a block from now on, because the provider refused it.

    The message comes before the program's next request, or before the result if the error ended the program's turn.
    """
    return message.get("type") == "assistant" and message.get("api_error") in _MEDIA_ERRORS


def media_refusal_of(message: JsonObject) -> ContentRefused:
    """Return the refusal that the program reports.

    The program does not say which block it omits. So the turn selects one, and a new program continues with a note in
    its place: what the ledger says is then what the provider gets.
    """
    named: JsonObject = message.get("api_error_params") or {}
    media = _MEDIA_ERRORS[message["api_error"]] or named.get("media")
    content: list[ContentBlock] = message.get("message", {}).get("content") or []
    return ContentRefused(_reported(text_of(tuple(content)).removeprefix("API Error: ")), media=media)


def program_ended(complaints: str) -> EngineFailure:
    """Return the failure of a program that ended without a result; it is no verdict on a key or the model."""
    verdict = _VERDICTS.of(complaints)
    return EngineFailure(
        f"The Claude Code program ended before the turn did. It said: {complaints or 'nothing'}",
        kind="unknown" if verdict is None else verdict.kind,
        retryable=verdict is None or verdict.retryable,
    )


def _reported(text: str) -> str:
    return f"The Claude Code program reports: {bounds.said(text)}"


def _message_of(result: JsonObject) -> str:
    errors = [str(error) for error in result.get("errors") or () if error]
    text = result.get("result")
    return "; ".join(errors) or (text.strip() if isinstance(text, str) else "") or str(result.get("subtype"))
