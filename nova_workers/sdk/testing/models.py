"""The model of a test: a server on loopback that gives scripted answers, and refuses what providers would."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Self

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from nova_workers.sdk.testing.providers import NOT_SERVED
from nova_workers.sdk.testing.strict import Refused
from nova_workers.sdk.testing.wires import WIRES, Wire

_STOP_S: Final = 10.0
_NO_MODEL: Final = "No test scripts the model now: ask for the fixture 'model'."


class Model:
    """What a model answers, in the order in which it is asked. Each method returns the model, for the next answer.

    Attributes:
        requests: What it was asked, oldest first. Each has the wire form of its agent's engine: the Messages API, chat
            completions, or the Responses API.
    """

    def __init__(self) -> None:
        """Script nothing."""
        self.requests: list[dict[str, Any]] = []
        self._answers: deque[dict[str, Any]] = deque()
        self._problems: list[str] = []

    def says(self, text: str) -> Self:
        """Answer with text."""
        self._answers.append({"content": text})
        return self

    def calls(self, tool: str, /, **given: Any) -> Self:
        """Answer with the call of a tool."""
        return self.calls_at_once((tool, given))

    def calls_at_once(self, *calls: tuple[str, dict[str, Any]]) -> Self:
        """Answer with several calls, each a tool and its input."""
        self._answers.append(
            {"content": "", "tool_calls": [{"name": name, "arguments": given} for name, given in calls]}
        )
        return self

    def problems(self) -> list[str]:
        """Return the mistakes in the requests, and the answers that were not asked for."""
        left = [f"The model was not asked for this answer: {answer}" for answer in self._answers]
        return [*self._problems, *left]

    def answer(
        self, wire: Wire, body: dict[str, Any], headers: dict[str, str], size_bytes: int
    ) -> dict[str, Any] | Refused:
        """Return the next answer to a request, or why there is none. For the server."""
        try:
            wire.check(body, headers, size_bytes)
        except Refused as refused:
            self._problems.append(f"The provider would refuse a request: {refused.message}")
            return refused
        self.requests.append(body)
        if self._answers:
            return self._answers.popleft()
        last = orjson.dumps(body[wire.conversation][-1]).decode()
        return self.refuse(
            f"The model was asked once more than the test has answers for it. The last message: {last:.500}"
        )

    def refuse(self, problem: str) -> Refused:
        """Note a mistake, and return it as the answer to a request. For the server."""
        self._problems.append(problem)
        return Refused(problem)


class ModelServer:
    """Serves the model of the current test."""

    def __init__(self) -> None:
        """Take a free port of loopback."""
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._model: Model | None = None
        app = Starlette(
            routes=[
                *(Route(wire.path, partial(self._ask, wire), methods=["POST"]) for wire in WIRES),
                *(
                    Route(f"/{engine}/{{path:path}}", partial(self._refuse, engine), methods=["POST"])
                    for engine in NOT_SERVED
                ),
            ]
        )
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="model", daemon=True
        )

    def start(self) -> None:
        """Serve in a thread. Requests that come before it is ready wait."""
        self._socket.listen()
        self._thread.start()

    def stop(self) -> None:
        """Stop it."""
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._socket.close()

    @contextmanager
    def model(self) -> Generator[Model]:
        """Let a new model answer within the block."""
        self._model = Model()
        try:
            yield self._model
        finally:
            self._model = None

    async def _ask(self, wire: Wire, request: Request) -> Response:
        raw = await request.body()
        body: dict[str, Any] = orjson.loads(raw)
        model = self._model
        answer = Refused(_NO_MODEL) if model is None else model.answer(wire, body, dict(request.headers), len(raw))
        if isinstance(answer, Refused):
            return JSONResponse(wire.error(answer), answer.status)
        if body.get("stream"):
            return StreamingResponse(wire.events(answer, body), media_type="text/event-stream")
        return JSONResponse(wire.whole(answer, body))

    async def _refuse(self, engine: str, _: Request) -> Response:
        """Refuse a request of a program, in a form that each of them reads."""
        problem = (
            f"The model of a test does not answer agents of the engine {engine!r}. Let the test have an agent of the "
            "engine 'anthropic' or 'openai', with the same tools."
        )
        refused = Refused(_NO_MODEL) if self._model is None else self._model.refuse(problem)
        error = {"type": refused.type, "code": refused.status, "status": "INVALID_ARGUMENT", "message": refused.message}
        return JSONResponse({"error": error}, refused.status)
