"""What FastAPI does not write into the OpenAPI document by itself.

Errors: every one is a `Problem` in ``application/problem+json``. Ids of operations: the names of the routes, so that
generated clients have methods such as ``create_run``. Streams: the schema of each event, or of each line.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.changes import change_event_adapter
from nova_workers.contracts.events import event_adapter
from nova_workers.contracts.orchestration.events import tree_record_adapter
from nova_workers.contracts.orders.definitions import schemas as order_schemas

from .late_modules import load_all
from .late_route import LateRoute

EVENT_STREAM = "text/event-stream"
PROBLEM_MEDIA_TYPE = "application/problem+json"

_DESCRIPTIONS = {
    400: "The request cannot be read: no JSON, no UTF-8, or a cursor that this list did not give.",
    401: "No API key, or one that is not known, was revoked or has expired.",
    403: "The key lacks the scope.",
    404: "No such thing in this tenant.",
    409: "The present state does not allow it, or a count is at its bound.",
    410: "It was deleted.",
    412: "It was changed since the version that If-Match names.",
    413: "The body is larger than the server reads.",
    415: "The body is not application/json.",
    422: "A field has the wrong form; `errors` names each.",
    429: "Too much at once, or too often; see Retry-After.",
    503: (
        "A server that we need fails. `unavailable`: nothing was written; see Retry-After. `outcome_unknown`: the "
        "request may have been carried out; `context.look_up` is the path of a GET that shows it."
    ),
}

_ALWAYS = (401, 403, 429, 503)

ORDER = {"$ref": "#/components/schemas/AiWorkOrderV1"}
"""The schema of a work order."""
ORDER_RESULT = {"$ref": "#/components/schemas/AiWorkResultV1"}
"""The schema of its result."""

_STREAMED: Mapping[str, TypeAdapter[Any]] = {
    "RunEvent": event_adapter,
    "OrchestrationEvent": tree_record_adapter,
    "ChangeEvent": change_event_adapter,
}


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route: the errors of every route, the named ones, and those of a body.

    `install_openapi` writes their schema into the document. For a ``model`` here FastAPI would build a validator for
    each status of each route: 1,200 equal ones, which are 5 MB.
    """
    named = {*_ALWAYS, *statuses, *((400, 413, 415, 422) if body else ())}
    return {status: {"description": _DESCRIPTIONS[status]} for status in sorted(named)}


def event_stream(of: str, description: str) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that sends server-sent events.

    The form is FastAPI's own: ``itemSchema`` of OpenAPI 3.2, which readers of 3.1 pass over.

    Args:
        of: The schema of an event's data, one of `_STREAMED`.
        description: What an event has.
    """
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": _reference(of)}
    names = {"id": {"type": "string"}, "event": {"type": "string"}, "data": data}
    item = {"type": "object", "properties": names, "required": ["data"]}
    content = {"schema": {"type": "string"}, "itemSchema": item}
    return {200: {"description": description, "content": {EVENT_STREAM: content}}}


def json_lines(media_type: str, of: str | None = None) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that sends one JSON object a line; `of` is its schema."""
    item = {"type": "object"} if of is None else _reference(of)
    content = {"schema": {"type": "string"}, "itemSchema": item}
    return {200: {"description": "One JSON object a line.", "content": {media_type: content}}}


def csv_file() -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that sends lines for spreadsheets (RFC 4180)."""
    content = {"text/csv": {"schema": {"type": "string"}}}
    return {200: {"description": "A line of headings, and one for each item.", "content": content}}


def install_openapi(app: FastAPI) -> None:
    """Complete the document of an application whose routes are all there."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            for route in load_all(app).routes:
                if isinstance(route, LateRoute):
                    route.build()
                if isinstance(route, APIRoute):
                    route.operation_id = route.name
            document = make()
            for operations in document["paths"].values():
                for operation in operations.values():
                    _set_problem_media_type(operation["responses"])
            _add_schemas(document["components"]["schemas"])
        return make()

    app.openapi = openapi  # pyright: ignore[reportAttributeAccessIssue] - FastAPI's own way to extend the document


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _add_schemas(schemas: dict[str, Any]) -> None:
    """Add the schemas of events and of work orders, which no route names as its model."""
    schemas |= order_schemas("#/components/schemas/{model}")
    for name, adapter in _STREAMED.items():
        found = adapter.json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas |= found.pop("$defs", {})
        schemas[name] = found


def _has_another_form(response: Mapping[str, Any]) -> bool:
    """Return whether a route documents errors of a form of its own: the results of work orders."""
    schemas = [content.get("schema", {}) for content in response.get("content", {}).values()]
    return any("$ref" not in schema or schema == ORDER_RESULT for schema in schemas)


def _set_problem_media_type(responses: dict[str, dict[str, Any]]) -> None:
    for status, response in responses.items():
        if status >= "400" and not _has_another_form(response):
            response["content"] = {PROBLEM_MEDIA_TYPE: {"schema": _reference(Problem.__name__)}}
