"""A client of LangGraph's server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal

_NO_THREAD = "thr_01ARZ3NDEKTSV4RRFFQ69G5FAV"
_MODES = "stream_mode=values&stream_mode=messages-tuple&stream_mode=updates"


@dataclass(frozen=True)
class LangGraphDoor:
    """Sends messages as runs in the background, of a thread or stateless."""

    name: str = "langgraph"
    door: DoorName = "langgraph"
    prefix: str = "/langgraph"
    can: frozenset[Ability] = field(default=frozenset({"read", "cancel", "continue", "answer", "resume"}))

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return requests of each kind."""
        run = f"/langgraph/threads/{_NO_THREAD}/runs/{run_id}"
        body = {"assistant_id": "nova", "input": {"messages": [{"role": "user", "content": "hello"}]}}
        return (
            DoorRequest("GET", "/langgraph/ok"),
            DoorRequest("GET", "/langgraph/info"),
            DoorRequest("POST", "/langgraph/assistants/search", {}),
            DoorRequest("GET", "/langgraph/assistants/nova"),
            DoorRequest("POST", "/langgraph/assistants", {}),
            DoorRequest("POST", "/langgraph/threads", {}),
            DoorRequest("POST", "/langgraph/threads/search", {}),
            DoorRequest("GET", f"/langgraph/threads/{_NO_THREAD}"),
            DoorRequest("GET", f"/langgraph/threads/{_NO_THREAD}/state"),
            DoorRequest("DELETE", f"/langgraph/threads/{_NO_THREAD}"),
            self.message(),
            DoorRequest("POST", "/langgraph/runs/stream", body),
            DoorRequest("POST", f"/langgraph/threads/{_NO_THREAD}/runs", body),
            DoorRequest("GET", f"/langgraph/threads/{_NO_THREAD}/runs"),
            DoorRequest("GET", run),
            DoorRequest("GET", f"{run}/join"),
            DoorRequest("GET", f"{run}/stream"),
            DoorRequest("POST", f"{run}/cancel"),
        )

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a request for a run."""
        body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": text}]}}
        headers = {} if request_id is None else {"Idempotency-Key": request_id}
        path = "/langgraph/runs" if thread_id is None else f"/langgraph/threads/{thread_id}/runs"
        return DoorRequest("POST", path, body, headers)

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it; it is answered at once."""
        return await request.send(http)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the run of an answer."""
        assert answer.status_code == 200, answer.text
        return answer.json()["run_id"]

    def stream(self, run_id: str) -> DoorRequest:
        """Return a request for a run that is streamed."""
        body = {"assistant_id": "nova", "input": {"messages": [{"role": "user", "content": "hello"}]}}
        return DoorRequest("POST", "/langgraph/runs/stream", body)

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Return the run with the state of its thread: the protocol has them in two places."""
        place = await self._place(http, run_id)
        run = await http.get(place)
        if run.status_code != 200:
            return run
        state = await http.get(f"{place.partition('/runs/')[0]}/state")
        both = {"run": run.json(), "state": state.json()}
        return httpx2.Response(200, content=orjson.dumps(both), headers={"content-type": "application/json"})

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel the run."""
        return await http.post(f"{await self._place(http, run_id)}/cancel")

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Resume with the answer to an interrupt."""
        thread = (await self._place(http, run_id)).partition("/runs/")[0]
        body = {"assistant_id": "nova", "command": {"resume": {wait_id: text}}}
        return await http.post(f"{thread}/runs", json=body)

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Follow a run, with the id of each event that has one."""
        headers = {} if after is None else {"Last-Event-ID": after}
        answer = await http.get(f"{await self._place(http, run_id)}/stream?{_MODES}", headers=headers)
        assert answer.status_code == 200, answer.text
        return events_of(answer.text)

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return the status of a run, and what the agent said after the last message of the user."""
        assert answer.status_code == 200, answer.text
        run, state = answer.json()["run"], answer.json()["state"]
        text = ""
        for message in state["values"]["messages"]:
            text = "" if message["type"] == "human" else text + str(message["content"])
        match run["status"]:
            case "success":
                return Outcome("succeeded", text)
            case "error":
                return Outcome("failed", text)
            case "interrupted":
                return Outcome("canceled" if "cancel_reason" in run else "waiting", text)
            case _:
                return Outcome("working", text)

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return the code and the first field of an error."""
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/json"
        error: dict[str, Any] = answer.json()
        assert error["detail"]
        fields = error.get("errors") or [{"field": None}]
        return Refusal(error["code"], fields[0]["field"], answer.status_code)

    async def _place(self, http: httpx2.AsyncClient, run_id: str) -> str:
        found = await http.get(f"/v1/runs/{run_id}")
        thread_id = found.json()["thread_id"] if found.is_success else _NO_THREAD
        return f"/langgraph/threads/{thread_id}/runs/{run_id}"


def events_of(body: str) -> list[DoorEvent]:
    """Return the events of a stream; only those that have an id of their own have one."""
    found: list[DoorEvent] = []
    for frame in body.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        found.append(DoorEvent(fields.get("id"), (fields["event"], orjson.loads(fields["data"]))))
    return found
