"""Errors in the forms of the protocol: of JSON-RPC at the address of an agent, and of HTTP below it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from a2a.utils.error_handlers import build_error_details, build_rest_error_payload
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    TaskNotFoundError,
)

from nova_workers.contracts.bodies import Problem

from ...errors import MalformedRequest, UnsupportedMediaType

_STATUSES: Final = {
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.GONE: "NOT_FOUND",
    HTTPStatus.CONFLICT: "ABORTED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}
"""Names of gRPC's statuses, which the HTTP binding has beside those of HTTP."""

_KINDS: Final[dict[str, type[A2AError]]] = {
    MalformedRequest.code: JSONParseError,
    UnsupportedMediaType.code: ContentTypeNotSupportedError,
}
"""What the protocol calls refusals of bodies, by our codes."""

_FIELDS: Final = {"thread_id": "message.contextId", "message": "message.parts"}
"""Fields of the native API, as the protocol names them."""


def error_document(found: Problem) -> dict[str, Any]:
    """Return a problem in the form of the binding whose path it is of."""
    error = error_of(found)
    if _is_rpc(found.instance or ""):
        return rpc_error(None, error)
    document = build_rest_error_payload(error)
    fallback = "INTERNAL" if found.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "INVALID_ARGUMENT"
    name = _STATUSES.get(HTTPStatus(found.status), fallback)
    document["error"] |= {"code": found.status, "status": name}
    return document


def rpc_error(request_id: str | int | None, error: A2AError) -> dict[str, Any]:
    """Return an error as the response to a call. The SDK's own builder knows no error of a body that is not JSON."""
    code = JSON_RPC_ERROR_CODE_MAP[type(error)]
    details = {"code": code, "message": error.message, "data": build_error_details(error)}
    return {"jsonrpc": "2.0", "id": request_id, "error": details}


def error_of(found: Problem) -> A2AError:
    """Return a problem as an error of the protocol, whose data has the fleet's code, its API's status, and fields."""
    data: dict[str, Any] = {"code": found.code, "status": str(found.status)}
    fields = [
        {"field": _field(str(error["field"])), "message": str(error.get("message", found.detail))}
        for error in found.errors
        if error.get("field")
    ]
    if fields:
        data["errors"] = fields
    return _kind(found)(found.detail, data)


def _kind(found: Problem) -> type[A2AError]:
    if found.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return InternalError
    if found.code in _KINDS:
        return _KINDS[found.code]
    match found.status, found.context.get("kind"):
        case ((HTTPStatus.NOT_FOUND | HTTPStatus.GONE), ("run" | "push_config")):
            return TaskNotFoundError
        case ((HTTPStatus.NOT_FOUND | HTTPStatus.GONE), ("agent" | "thread")):
            return InvalidParamsError
        case HTTPStatus.UNPROCESSABLE_ENTITY, _:
            return InvalidParamsError
        case _:
            return InvalidRequestError


def _field(name: str) -> str:
    first, dot, rest = name.partition(".")
    if rest[:1].isalpha():
        # The protocol's own: a message of the native API is a list.
        return name
    return f"{_FIELDS.get(first, first)}{dot}{rest}"


def _is_rpc(path: str) -> bool:
    """Return whether a path is an agent's own: ``/a2a/{agent_id}``."""
    return path.rstrip("/").count("/") <= 2
