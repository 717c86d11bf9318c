"""The Tasks extension of the protocol, 2026-07-28, of which the SDK has no types; and errors."""

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    Notification,
    PaginatedRequestParams,
    RequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, StringConstraints
from starlette.requests import Request

from nova_workers.base.errors import NovaError
from nova_workers.contracts.bodies import Problem

from ...errors import MalformedRequest, problem
from ...pagination import PageRequest

PATH: Final = "/mcp"
TASKS: Final = "io.modelcontextprotocol/tasks"
POLL_INTERVAL_MS: Final = 2_000
MAX_FOLLOWED_TASKS: Final = 100
"""Most tasks of one subscription."""

_EARLY_CODES: Final = {MalformedRequest.code: PARSE_ERROR}

Context = ServerRequestContext[Any, Request]

TaskId = Annotated[str, StringConstraints(min_length=1, max_length=80)]


class TaskParams(RequestParams):
    """What ``tasks/get`` and ``tasks/cancel`` take."""

    task_id: TaskId


class TaskUpdateParams(TaskParams):
    """What ``tasks/update`` takes."""

    input_responses: dict[str, Any] = Field(max_length=1_000)


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """The state of a task, as ``tasks/get`` gives it."""

    method: Literal["notifications/tasks"] = "notifications/tasks"


def is_modern(context: Context) -> bool:
    """Return whether a request is of a version without handshake, which declares its client's capabilities."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def takes_tasks(context: Context) -> bool:
    """Return whether the client of a request declared that it takes tasks as results."""
    declared = context.session.client_capabilities
    return is_modern(context) and declared is not None and TASKS in (declared.extensions or {})


def takes_questions(context: Context) -> bool:
    """Return whether the client of a request declared that it shows questions to its user."""
    declared = context.session.client_capabilities
    # A client that declares the capability without a mode shows forms.
    return (
        is_modern(context)
        and declared is not None
        and declared.elicitation is not None
        and (declared.elicitation.form is not None or declared.elicitation.url is None)
    )


def need_tasks(context: Context) -> None:
    """Refuse a request about tasks unless its client declared them.

    Raises:
        MCPError: It did not, or its version of the protocol has no such method.
    """
    if not is_modern(context):
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    if not takes_tasks(context):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs a client that declares the extension {TASKS}.",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )


def check_task_header(request: Request, task_id: str) -> None:
    """Refuse a request whose `Mcp-Name` is not its task, which the SDK checks for other methods.

    Raises:
        MCPError: It is missing, or another one.
    """
    named = request.headers.getlist(MCP_NAME_HEADER)
    if len(named) != 1 or decode_header_value(named[0]) != task_id:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must be the taskId of the request.")


def paging(params: PaginatedRequestParams | None, limit: int) -> PageRequest:
    """Return the page that a request for a list asks for."""
    return PageRequest(None if params is None else params.cursor, limit)


def refused(error: NovaError) -> MCPError:
    """Return an error of ours as one of the protocol."""
    found = problem(error)
    code = INTERNAL_ERROR if _is_fault(found) else INVALID_PARAMS
    return MCPError(code, found.detail, reason_of(found))


def error_document(found: Problem) -> dict[str, Any]:
    """Return a refusal of the guard, or of what else comes before the server, as an error of the protocol."""
    code = INTERNAL_ERROR if _is_fault(found) else _EARLY_CODES.get(found.code, INVALID_REQUEST)
    error = {"code": code, "message": found.detail, "data": reason_of(found)}
    return {"jsonrpc": "2.0", "id": None, "error": error}


def reason_of(found: Problem) -> dict[str, Any]:
    """Return the part of an error for programs: the fleet's code, its API's status, and the field that is named."""
    fields = [error["field"] for error in found.errors if error.get("field")]
    return {"code": found.code, "status": found.status} | ({"field": fields[0]} if fields else {})


def _is_fault(found: Problem) -> bool:
    return found.status >= HTTPStatus.INTERNAL_SERVER_ERROR
