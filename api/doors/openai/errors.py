"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import Any, Final

from nova_workers.contracts.bodies import Problem

_CODES: Final = {"unauthenticated": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}
_FIELDS: Final = {"agent_id": "model", "client_tools": "tools"}
"""Fields of the native API, as the protocol names them."""
_INPUTS: Final = frozenset({"message", "messages", "results"})
_CHAT: Final = "/openai/v1/chat/"


def error_document(problem: Problem) -> dict[str, Any]:
    """Return a problem as an error of the protocol: `param` is the first field that it names."""
    first = problem.errors[0] if problem.errors else {}
    message = str(first.get("message", "")) or problem.detail
    return {
        "error": {
            "message": problem.detail if problem.code != "invalid_input" else message,
            "type": _type_of(problem.status),
            "param": _param(first.get("field"), _CHAT in (problem.instance or "")),
            "code": _CODES.get(problem.code, problem.code),
        }
    }


def _param(field: object, is_chat: bool) -> str | None:
    if not isinstance(field, str):
        return None
    name, dot, rest = field.partition(".")
    if is_chat and name in _INPUTS:
        return f"messages{dot}{rest}" if name == "messages" else "messages"
    if name in _INPUTS:
        # Places in it are those of what was made of it.
        return "input"
    return f"{_FIELDS.get(name, name)}{dot}{rest}"


def _type_of(status: int) -> str:
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 404 | 410:
            return "not_found_error"
        case 429:
            return "rate_limit_error"
        case _:
            return "server_error" if status >= 500 else "invalid_request_error"
