"""A client of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal

_CODES: Final[Mapping[str, str]] = {"invalid_api_key": "unauthenticated", "rate_limit_exceeded": "rate_limited"}
_RESPONSES: Final = "/openai/v1/responses"
_NO_CONVERSATION: Final = "/openai/v1/conversations/conv_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@dataclass(frozen=True)
class OpenAIDoor:
    """Sends messages as responses in the background."""

    name: str = "openai"
    door: DoorName = "openai"
    prefix: str = "/openai/v1"
    can: frozenset[Ability] = frozenset({"read", "cancel", "continue", "resume"})

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return a request for each path."""
        response = f"{_RESPONSES}/{self.name_of(run_id)}"
        return (
            DoorRequest("GET", "/openai/v1/models"),
            DoorRequest("GET", "/openai/v1/models/nova"),
            self.message(),
            DoorRequest("GET", response),
            DoorRequest("GET", f"{response}?stream=true"),
            DoorRequest("GET", f"{response}/input_items"),
            DoorRequest("POST", f"{response}/cancel"),
            DoorRequest("DELETE", response),
            DoorRequest("POST", f"{_RESPONSES}/compact", {"model": "nova", "input": "hello"}),
            DoorRequest("POST", "/openai/v1/conversations", {}),
            DoorRequest("GET", _NO_CONVERSATION),
            DoorRequest("GET", f"{_NO_CONVERSATION}/items"),
            DoorRequest("DELETE", _NO_CONVERSATION),
        )

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a request for a response."""
        conversation = None if thread_id is None else f"conv_{thread_id.removeprefix('thr_')}"
        addressee = {"model": agent} if conversation is None else {"conversation": conversation}
        headers = {} if request_id is None else {"Idempotency-Key": request_id}
        return DoorRequest("POST", _RESPONSES, {**addressee, "input": text, "background": True}, headers)

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it; it is answered at once."""
        return await request.send(http)

    async def send(
        self, http: httpx2.AsyncClient, text: str = "hello", *, request_id: str | None = None, **fields: Any
    ) -> httpx2.Response:
        """Create a response in the background, with further fields."""
        request = self.message(text, request_id=request_id)
        body = {**request.body, **fields}
        if "previous_response_id" in fields or "conversation" in fields:
            body.pop("model")
        return await DoorRequest("POST", _RESPONSES, body, request.headers).send(http)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the run of a response."""
        return self.run_of(answer)

    def stream(self, run_id: str) -> DoorRequest:
        """Return a request that follows the response of a run."""
        return DoorRequest("GET", f"{_RESPONSES}/{self.name_of(run_id)}?stream=true")

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Get the response."""
        return await http.get(f"{_RESPONSES}/{self.name_of(run_id)}")

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel the response."""
        return await http.post(f"{_RESPONSES}/{self.name_of(run_id)}/cancel")

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Fail: the protocol has no questions."""
        raise NotImplementedError

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Follow the response of a run. Pieces of a text come in one or in several, and are one event here."""
        resumed = {} if after is None else {"starting_after": after}
        params = {"stream": "true", **resumed}
        found: list[DoorEvent] = []
        async with http.stream("GET", f"{_RESPONSES}/{self.name_of(run_id)}", params=params) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = orjson.loads(line.removeprefix("data: "))
                    if event["type"].endswith("text.delta") and found and found[-1].content["type"] == event["type"]:
                        event["delta"] = found.pop().content["delta"] + event["delta"]
                    found.append(DoorEvent(str(event["sequence_number"]), event))
        return found

    def run_of(self, answer: httpx2.Response) -> str:
        """Return the run of a response."""
        assert answer.status_code == 200, answer.text
        return f"run_{answer.json()['id'].removeprefix('resp_')}"

    def name_of(self, run_id: str) -> str:
        """Return the id of a run's first response."""
        return f"resp_{run_id.removeprefix('run_')}"

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return code and param of an error."""
        code, param = self.error_of(answer)
        return Refusal(_CODES.get(code, code), param, answer.status_code)

    def error_of(self, answer: httpx2.Response) -> tuple[str, str | None]:
        """Return code and param as the protocol has them."""
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"]
        return error["code"], error["param"]

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return the status of a response, and the text of its messages."""
        assert answer.status_code == 200, answer.text
        response = answer.json()
        parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
        text = "".join(part["text"] for part in parts)
        match response["status"]:
            case "completed":
                asks = any(item["type"] == "function_call" for item in response["output"])
                return Outcome("waiting" if asks else "succeeded", text)
            case "failed":
                return Outcome("failed", text)
            case "cancelled" | "incomplete":
                return Outcome("canceled", text)
            case status:
                assert status in {"queued", "in_progress"}
                return Outcome("working", text)
