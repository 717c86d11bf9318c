"""Sends messages to their route before the first real one, in memory, from a tenant that does not exist.

They are refused, since it has no agent: nothing is written, and as they pass no middleware, nothing is counted and no
key is used. So the code of requests has run, and the session has planned their statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Message

from nova_workers.errors import NotFound
from nova_workers.ids import new_id
from nova_workers.ledger.visibility import one_tenant
from nova_workers.observability.tracing import unrecorded
from nova_workers.upkeep.rehearsal import PLANNED_AFTER

from ...auth import Caller, keep_caller
from . import submissions

__all__ = ["rehearse_messages"]

_PATH = "/v1/runs/wait"
_BODY = orjson.dumps({"message": "Hello"})


async def rehearse_messages(app: FastAPI) -> None:
    """Rehearse messages, on the session that the next request of a tenant would get.

    Raises:
        Unavailable: The database does not answer.
    """
    tenant_id = new_id("ten")
    route = next(each for each in submissions.router.routes if isinstance(each, Route) and each.path == _PATH)
    with one_tenant(tenant_id), unrecorded():
        for _ in range(PLANNED_AFTER):
            with suppress(NotFound):
                await route.app(_request(app, tenant_id), _Client(), _ignore)


def _request(app: FastAPI, tenant_id: str) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": _PATH,
        "path_params": {},
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "app": app,
    }
    caller = Caller(
        key_id=new_id("key"), key_name="rehearsal", tenant_id=tenant_id, scopes=frozenset({"runs"}), address=None
    )
    keep_caller(scope, caller)
    return scope


class _Client:
    """Sends the body, and is gone."""

    def __init__(self) -> None:
        self._messages: Iterator[Message] = iter([{"type": "http.request", "body": _BODY, "more_body": False}])

    async def __call__(self) -> Message:
        return next(self._messages, {"type": "http.disconnect"})


async def _ignore(message: Message) -> None:
    """Take a part of an answer."""
