"""Requests of the second tenant that are sent once, without a key: the checker compares their answers with the ledger.

They are about runs that start on another day: no worker changes what the requests left.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2

from tests.chaos.history import Recorder
from tests.chaos.runner.fleet import ChaosFleet

Json = dict[str, Any]

_TIMEOUT_S = 10.0
_GAP_S = 1.0
_IS_DONE: Final = {
    "submit": "SELECT count(*) = 1 FROM runs WHERE tenant_id = $1 AND meta->>'key' = $2",
    "edit": "SELECT content->0->>'text' = 'edited' FROM runs WHERE tenant_id = $1 AND meta->>'key' = $2",
    "cancel": "SELECT cancel_requested_at IS NOT NULL FROM runs WHERE tenant_id = $1 AND meta->>'key' = $2",
    "delete": (
        "SELECT t.deleted_at IS NOT NULL FROM runs r JOIN threads t ON t.id = r.thread_id "
        "WHERE r.tenant_id = $1 AND r.meta->>'key' = $2"
    ),
}


@dataclass(frozen=True)
class _Sent:
    action: str
    mark: str
    status: int
    code: str | None
    look_up: str | None


class OnceSender:
    """Sends until `stop`.

    Args:
        fleet: With the second tenant's key, and its agent.
        agent_id: That agent.
        recorder: The record.
        rng: Of all choices.
    """

    def __init__(self, fleet: ChaosFleet, agent_id: str, recorder: Recorder, rng: random.Random) -> None:
        self._fleet = fleet
        self._agent_id = agent_id
        self._recorder = recorder
        self._rng = rng
        self._sent: list[_Sent] = []
        headers = {"Authorization": f"Bearer {fleet.guest_key}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S)
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._sending = asyncio.create_task(self._send_all())

    async def stop(self) -> None:
        """Send nothing new, and record what was answered beside what the ledger has. Every fault is removed."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._http.aclose()
        for sent in self._sent:
            rows = await self._fleet.sql(_IS_DONE[sent.action], self._fleet.guest_tenant_id, sent.mark)
            self._recorder.write(
                "once",
                action=sent.action,
                mark=sent.mark,
                status=sent.status,
                code=sent.code,
                look_up=sent.look_up,
                is_done=bool(rows and rows[0][0]),
            )

    async def _send_all(self) -> None:
        for number in itertools.count(1):
            await self._send_about(f"once-{number}")
            await asyncio.sleep(self._rng.expovariate(1 / _GAP_S))

    async def _send_about(self, mark: str) -> None:
        start_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        body = {"agent_id": self._agent_id, "message": mark, "start_at": start_at, "metadata": {"key": mark}}
        run = await self._send("submit", mark, "POST", "/v1/runs", body)
        if run is None:
            return
        match self._rng.choice(("edit", "cancel", "delete")):
            case "edit":
                await self._send("edit", mark, "PATCH", f"/v1/runs/{run['id']}", {"message": "edited"})
            case "cancel":
                await self._send("cancel", mark, "POST", f"/v1/runs/{run['id']}/cancel")
            case _:
                await self._send("delete", mark, "DELETE", f"/v1/threads/{run['thread_id']}")

    async def _send(self, action: str, mark: str, method: str, path: str, body: Json | None = None) -> Json | None:
        """Send a request once. Return the answer's body if it has success."""
        url = self._rng.choice(self._fleet.api_urls)
        try:
            answer = await self._http.request(method, f"{url}{path}", json=body)
            given: Json = answer.json() if answer.content else {}
        except (httpx2.TransportError, ValueError):
            return None
        look_up = given.get("context", {}).get("look_up")
        self._sent.append(_Sent(action, mark, answer.status_code, given.get("code"), look_up))
        return given if answer.is_success else None
