"""Reads a work order from a request, and answers a refused one with a result: never with its content."""

from http import HTTPStatus
from typing import Annotated, cast

import orjson
from fastapi import Depends, FastAPI, Request, Response

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.base.ids import new_id
from nova_workers.contracts.orders import OrderProblem
from nova_workers.domain.orders.rules.checker import invalid_result
from nova_workers.domain.orders.rules.door import AdmittedOrder, RefusedOrder

from ...auth import SubmittingCaller
from ...errors import MalformedRequest
from ...json_body import parse_json
from ...state import State

_UNREADABLE = "it is not JSON in UTF-8, or is nested deeper than 64 levels"
_NUL = "a text contains the character U+0000, which cannot be stored"
_MEDIA_TYPE = "send it as Content-Type: application/json"


class OrderRefused(Rejected):
    """A work order that cannot be executed. It is answered with a result, beside the HTTP status."""

    code = "invalid_request"

    def __init__(self, status: HTTPStatus, refused: RefusedOrder) -> None:
        super().__init__("The work order is invalid; the result names its fields.")
        self.status = status
        self.refused = refused


def install_order_refusals(app: FastAPI) -> None:
    """Answer refused orders with results."""
    app.add_exception_handler(OrderRefused, _on_refused)


async def _admit(request: Request, caller: SubmittingCaller, state: State) -> AdmittedOrder:
    found = await state.services.order_door.admit(caller.tenant_id, await _read(request))
    if isinstance(found, RefusedOrder):
        raise OrderRefused(HTTPStatus.UNPROCESSABLE_ENTITY, found)
    return found


Admitted = Annotated[AdmittedOrder, Depends(_admit)]
"""The order of the request, which may be executed. A refused one never reaches the route."""


async def _read(request: Request) -> object:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _MEDIA_TYPE)
    try:
        return parse_json(await request.body())
    except MalformedRequest:
        raise _refusal(HTTPStatus.BAD_REQUEST, _UNREADABLE) from None
    except InvalidInput:
        raise _refusal(HTTPStatus.UNPROCESSABLE_ENTITY, _NUL) from None


def _refusal(status: HTTPStatus, rule: str) -> OrderRefused:
    return OrderRefused(status, RefusedOrder([OrderProblem(path="", rule=rule)]))


async def _on_refused(request: Request, error: Exception) -> Response:
    refused = cast(OrderRefused, error)
    result = invalid_result(new_id("trc"), refused.refused.problems)
    return Response(orjson.dumps(result.to_wire()), refused.status, media_type="application/json")
