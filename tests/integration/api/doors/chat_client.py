"""A client of the Chat Completions API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal
from tests.integration.api.doors.openai_client import OpenAIDoor

_COMPLETIONS: Final = "/openai/v1/chat/completions"


@dataclass(frozen=True)
class ChatDoor:
    """Sends messages as streams, which it leaves at once."""

    name: str = "openai-chat"
    door: DoorName = "openai"
    prefix: str = "/openai/v1"
    can: frozenset[Ability] = frozenset({"read"})
    _responses: OpenAIDoor = field(default_factory=OpenAIDoor)

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return a request for each path."""
        texts = {"model": "all-MiniLM-L6-v2-onnx-int8", "input": "hello"}
        return (
            DoorRequest("GET", f"{_COMPLETIONS}/{self.name_of(run_id)}"),
            self.message(),
            DoorRequest("POST", "/openai/v1/embeddings", texts),
        )

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a request for a streamed completion."""
        assert thread_id is None
        headers = {} if request_id is None else {"Idempotency-Key": request_id}
        body = {"model": agent, "messages": [{"role": "user", "content": text}], "stream": True}
        return DoorRequest("POST", _COMPLETIONS, body, headers)

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it, and leave once the first chunk has come."""
        return await request.send_until(http, lambda found: b"\n\n" in found)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the run of a completion."""
        return run_of(chunks_of(answer.text)[0])

    def stream(self, run_id: str) -> DoorRequest:
        """Return a request for a completion of a run of its own."""
        return self.message()

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Fail: a question is answered in its chat."""
        raise NotImplementedError

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Fail: a stream cannot be resumed."""
        raise NotImplementedError

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Get the completion."""
        return await http.get(f"{_COMPLETIONS}/{self.name_of(run_id)}")

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Fail: the protocol has none."""
        raise NotImplementedError

    def name_of(self, run_id: str) -> str:
        """Return the id of a run's first completion."""
        return f"chatcmpl-{run_id.removeprefix('run_')}"

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return what a completion says."""
        if answer.status_code == 500:
            assert answer.headers["x-should-retry"] == "false"
            return Outcome("failed", self.refusal_of(answer).code or "")
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        text = choice["message"]["content"] or ""
        match choice["finish_reason"]:
            case None:
                return Outcome("working", text)
            case "tool_calls":
                return Outcome("waiting", text)
            case reason:
                return Outcome("succeeded" if reason == "stop" else "canceled", text)

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return code and param of an error."""
        return self._responses.refusal_of(answer)


def run_of(completion: Mapping[str, Any]) -> str:
    """Return the run of a completion or a chunk."""
    return f"run_{completion['id'].removeprefix('chatcmpl-').partition('_')[0]}"


def chunks_of(text: str) -> list[dict[str, Any]]:
    """Return the chunks of a stream."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [orjson.loads(each) for each in data if each != "[DONE]"]
