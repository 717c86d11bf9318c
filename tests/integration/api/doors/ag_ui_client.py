"""A client of the AG-UI protocol."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal

Event = dict[str, Any]

_ENDS: Final = {"success": "succeeded", "interrupt": "waiting", "cancelled": "canceled"}


def events_of(body: bytes) -> list[Event]:
    """Return the events of a stream."""
    assert b"\r" not in body
    frames = [frame for frame in body.decode().split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: ") for frame in frames), frames
    return [orjson.loads(frame.removeprefix("data: ")) for frame in frames]


def user(text: Any, message_id: str = "u1") -> dict[str, Any]:
    """Return a message of a person."""
    return {"id": message_id, "role": "user", "content": text}


@dataclass(frozen=True)
class AgUiDoor:
    """Sends messages as runs of an agent."""

    name: str = "ag-ui"
    door: DoorName = "ag-ui"
    prefix: str = "/ag-ui"
    can: frozenset[Ability] = frozenset({"continue", "answer"})

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return the answer to a call of a run, and a message."""
        call = f"call_{run_id.removeprefix('run_')}_toolu_1"
        result = {"id": "t1", "role": "tool", "toolCallId": call, "content": "rain"}
        return (self.input([user("hello"), result]), self.message())

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a request to run an agent."""
        run_id = request_id or secrets.token_hex(8)
        return self.input([user(text)], thread=thread_id or f"thread of {run_id}", run=run_id, agent=agent)

    def input(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        thread: str = "thread-1",
        run: str = "run-1",
        agent: str = "nova",
        **fields: Any,
    ) -> DoorRequest:
        """Return a request with any messages and further fields."""
        body = {"threadId": thread, "runId": run, "messages": list(messages), "protocolVersion": "1.0", **fields}
        return DoorRequest("POST", f"/ag-ui/{agent}", body, {"Accept": "text/event-stream"})

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it, and leave when the run has begun."""
        return await request.send_until(http, lambda found: b"\n\n" in found)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the newest run whose metadata has the ids of the stream."""
        assert answer.status_code == 200, answer.text
        begun = events_of(answer.content[: answer.content.index(b"\n\n") + 2])[0]
        assert (begun["type"], begun["protocolVersion"]) == ("RUN_STARTED", "1.0")
        names = {"thread_id": begun["threadId"], "run_id": begun["runId"]}
        runs = (await http.get("/v1/runs", params={"limit": 100})).json()["items"]
        return next(run["id"] for run in runs if run["metadata"].get("ag_ui") == names)

    def stream(self, run_id: str) -> DoorRequest:
        """Return a message: the protocol follows no run by its id."""
        return self.message("hello")

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Refuse: the protocol has no reading of a run by its id."""
        raise NotImplementedError

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Refuse: the protocol has no request that cancels."""
        raise NotImplementedError

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Resume with the answer to an interrupt, until the run goes on."""
        ulid = run_id.removeprefix("run_")
        found = await http.get(f"/v1/runs/{run_id}")
        thread = found.json()["thread_id"] if found.status_code == 200 else "thread of an answer"
        entry = {"interruptId": f"int_{ulid}_{wait_id.removeprefix('wait_')}", "status": "resolved", "payload": text}
        return await self.post(http, self.input([], thread=thread, run="answer", resume=[entry]))

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Refuse: a stream of the protocol is not resumed, but requested again."""
        raise NotImplementedError

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return how the run ended, and the text of its messages."""
        assert answer.status_code == 200, answer.text
        events = events_of(answer.content)
        text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        last = events[-1]
        match last["type"]:
            case "RUN_ERROR":
                return Outcome("failed", text)
            case "RUN_FINISHED" if last["outcome"].get("pendingToolCallIds"):
                return Outcome("waiting", text)
            case "RUN_FINISHED":
                return Outcome(_ENDS[last["outcome"]["type"]], text)  # pyright: ignore[reportArgumentType]
            case _:
                return Outcome("working", text)

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return the code and the first field of a `RUN_ERROR` in place of a stream."""
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()
        assert error["type"] == "RUN_ERROR"
        assert error["message"]
        assert re.fullmatch(r"[a-z_]+", error["code"])
        fields = error.get("metadata", {}).get("errors", [])
        return Refusal(error["code"], fields[0]["field"] if fields else None, answer.status_code)
