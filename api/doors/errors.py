"""Errors at a door's paths in the form of its protocol: those of its routes, and those of all that is before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_workers.contracts.bodies import Problem

from ..openapi import PROBLEM_MEDIA_TYPE
from .loading import LoadedDoor

_Form = Callable[[Problem], dict[str, Any]]


class DoorErrors:
    """Rewrites problem documents. Status and headers stay. Plain ASGI."""

    def __init__(self, app: ASGIApp, *, doors: Sequence[LoadedDoor]) -> None:
        self._app = app
        self._forms: Mapping[str, _Form] = {door.prefix: door.error for door in doors if door.error is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        form = self._form(scope["path"]) if scope["type"] == "http" else None
        if form is None:
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        parts: list[bytes] = []

        async def rewrite(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is not None and message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    body = orjson.dumps(form(Problem.model_validate_json(b"".join(parts))))
                    headers = MutableHeaders(scope=start)
                    headers["content-type"], headers["content-length"] = "application/json", str(len(body))
                    await send(start)
                    await send({"type": "http.response.body", "body": body})
            else:
                await send(message)

        await self._app(scope, receive, rewrite)

    def _form(self, path: str) -> _Form | None:
        return next((form for prefix, form in self._forms.items() if path.startswith(prefix)), None)


def _is_problem(start: Message) -> bool:
    wanted = PROBLEM_MEDIA_TYPE.encode()
    return any(name.lower() == b"content-type" and value.startswith(wanted) for name, value in start["headers"])
