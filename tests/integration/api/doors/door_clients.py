"""What the contract of doors needs of each: how its clients send, read and cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2


class DoorClient(Protocol):
    """A client of one door, as far as its protocol has what the contract is about."""

    name: str
    paths: tuple[str, ...]
    """One of each kind of request, as ``METHOD path``, with ``{run}`` for a run's id in the protocol's form."""

    async def send(
        self,
        http: httpx2.AsyncClient,
        text: str = "hello",
        *,
        agent: str = "nova",
        request_id: str | None = None,
        **fields: Any,
    ) -> httpx2.Response:
        """Send a message without waiting for its answer."""
        ...

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Read what became of a run."""
        ...

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel a run."""
        ...

    def run_of(self, answer: httpx2.Response) -> str:
        """Return the run that a message made."""
        ...

    def name_of(self, run_id: str) -> str:
        """Return a run's id in the protocol's form."""
        ...

    def error_of(self, answer: httpx2.Response) -> tuple[str, str | None]:
        """Return the code of an error and the field that it names. Fails for another form than the protocol's."""
        ...

    def text_of(self, answer: httpx2.Response) -> str:
        """Return the agent's text that was read."""
        ...


@dataclass(frozen=True)
class OpenAIDoor:
    """Clients of the Responses API."""

    name: str = "openai"
    paths: tuple[str, ...] = (
        "GET /openai/v1/models",
        "POST /openai/v1/responses",
        "GET /openai/v1/responses/{run}",
        "GET /openai/v1/responses/{run}?stream=true",
        "GET /openai/v1/responses/{run}/input_items",
        "POST /openai/v1/responses/{run}/cancel",
    )

    async def send(
        self,
        http: httpx2.AsyncClient,
        text: str = "hello",
        *,
        agent: str = "nova",
        request_id: str | None = None,
        **fields: Any,
    ) -> httpx2.Response:
        """Create a response in the background."""
        headers: Mapping[str, str] = {} if request_id is None else {"Idempotency-Key": request_id}
        body: dict[str, Any] = {"model": agent, "input": text, "background": True, **fields}
        if "previous_response_id" in fields or "conversation" in fields:
            body.pop("model")
        return await http.post("/openai/v1/responses", json=body, headers=dict(headers))

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Get the response."""
        return await http.get(f"/openai/v1/responses/{self.name_of(run_id)}")

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel the response."""
        return await http.post(f"/openai/v1/responses/{self.name_of(run_id)}/cancel")

    def run_of(self, answer: httpx2.Response) -> str:
        """Return the run of a response."""
        assert answer.status_code == 200, answer.text
        return f"run_{answer.json()['id'].removeprefix('resp_')}"

    def name_of(self, run_id: str) -> str:
        """Return the id of a run's first response."""
        return f"resp_{run_id.removeprefix('run_')}"

    def error_of(self, answer: httpx2.Response) -> tuple[str, str | None]:
        """Return code and param."""
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"]
        return error["code"], error["param"]

    def text_of(self, answer: httpx2.Response) -> str:
        """Return the text of all messages."""
        output = answer.json()["output"]
        return "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
