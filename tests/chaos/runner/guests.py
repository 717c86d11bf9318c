"""What a second tenant does while faults happen: trees of agents, work orders, approvals, the console, poison.

It has a tenant of its own, so that the checks of the conversations need not know its runs. Agents play scripts. What
was accepted is recorded, and `tests.chaos.checker.guests` compares it with the ledger.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import httpx2

from nova_workers.contracts.orders import EngineTrace, build_order
from tests.chaos.history import Recorder
from tests.chaos.runner.fleet import ChaosFleet
from tests.chaos.runner.once import OnceSender
from tests.chaos.runner.outside import GUEST_TOOL, ROLES

Json = dict[str, Any]

_AGENT = "guest"
_POLICY = "chaos"
_TIMEOUT_S = 10.0
_LOOK_S = 0.5
_REFUSED: Final = range(400, 500)

_MODEL = {"engine": "anthropic", "model": "haiku", "provider": "anthropic"}
_POLICY_DOCUMENT: Final[Json] = {
    "id": _POLICY,
    "version": "1",
    "produces": "copy_proposal_v1",
    "roles": [
        {
            "name": kind,
            "kind": kind,
            "models": [_MODEL],
            "prompt": {"system": "{{schema}}", "user": f"The role {kind}. {{{{inputs}}}}"},
            "maxOutputTokens": 500,
        }
        for kind in ROLES
    ],
    "caps": {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 50_000, "timeoutMs": 600_000},
    "presentation": {"modes": ["single_best"], "default": "single_best"},
}


class Guests:
    """Works until `stop`.

    Args:
        fleet: With the second tenant's key.
        recorder: The record.
        rng: Of all choices.
        gaps: Factor of the times between what it does.
        has_poison: Whether it sends runs that end their process.
    """

    def __init__(
        self,
        fleet: ChaosFleet,
        recorder: Recorder,
        rng: random.Random,
        *,
        gaps: float = 1.0,
        has_poison: bool = True,
    ) -> None:
        self._fleet = fleet
        self._recorder = recorder
        self._rng = rng
        self._gaps = gaps
        self._has_poison = has_poison
        self._numbers = itertools.count(1)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._secret = ""
        self._once = OnceSender(fleet, _AGENT, recorder, random.Random(rng.random()))
        headers = {"Authorization": f"Bearer {fleet.guest_key}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S, limits=httpx2.Limits(max_connections=None))

    async def start(self) -> None:
        """Make the agent, a policy and a secret of work orders, and begin."""
        await self._request("POST", "/v1/agents", _agent(self._fleet.tool_url))
        await self._request("PUT", f"/v1/work-order-policies/{_POLICY}", {"document": _POLICY_DOCUMENT})
        self._secret = (await self._request("POST", "/v1/work-order-secrets", {}))["secret"]
        work: tuple[tuple[Callable[[int], Awaitable[None]], float], ...] = (
            (self._tree, 4.0),
            (self._order, 3.0),
            (self._approval, 2.0),
            (self._visit, 1.5),
        )
        if self._has_poison:
            work = (*work, (self._poison, 60.0))
        self._tasks = [asyncio.create_task(self._repeat(each, gap_s * self._gaps)) for each, gap_s in work]
        self._person = asyncio.create_task(self._decide())
        self._once.start()

    async def stop(self) -> None:
        """Send nothing new. The person goes on to decide until `close`."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._once.stop()

    async def close(self) -> None:
        """End."""
        self._person.cancel()
        await asyncio.gather(self._person, return_exceptions=True)
        await self._http.aclose()

    async def _repeat(self, work: Callable[[int], Awaitable[None]], gap_s: float) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(self._rng.expovariate(1 / gap_s))
            await work(next(self._numbers))

    async def _tree(self, number: int) -> None:
        """Start a master with two children, one of which has a child."""
        leaf = _script({"tool": {"name": "work", "result": "done"}}, {"sleep_s": 0.3}, _complete(f"leaf {number}"))
        branch = _script(
            _call("spawn_child", {"prompt": leaf, "name": "leaf"}), {"sleep_s": 0.2}, _complete(f"branch {number}")
        )
        children = [{"prompt": branch, "name": "branch"}, {"prompt": leaf, "name": "twig"}]
        task = _script(_call("spawn_children_parallel", {"children": children}), _complete(f"tree {number}"))
        made = await self._request("POST", "/v1/orchestrations", {"agent_id": _AGENT, "task": task}, f"tree-{number}")
        self._record("tree", made["id"], f"tree {number}")

    async def _order(self, number: int) -> None:
        order = build_order(
            self._secret,
            tenant=self._fleet.guest_tenant_id,
            scope="chaos",
            policy_id=_POLICY,
            inputs={"number": number},
            trace=EngineTrace(job_id=f"order-{number}"),
        )
        body = order.model_dump(mode="json", by_alias=True, exclude_none=True)
        made = await self._request("POST", "/v1/work-orders", body, headers={"Prefer": "respond-async"})
        self._record("order", made["traceId"], "Final")

    async def _approval(self, number: int) -> None:
        """Send a message whose call needs a decision; the call's key says what the person decides."""
        decision = self._rng.choice(("yes", "no"))
        key = f"{decision}-{number}"
        message = _script(_call(GUEST_TOOL, {"key": key}), {"say": f"decided {number}"})
        made = await self._request("POST", "/v1/runs", {"agent_id": _AGENT, "message": message}, f"approval-{number}")
        self._record("approval", made["id"], f"decided {number}", key=key)

    async def _poison(self, number: int) -> None:
        """Send a message whose run ends the process that executes it."""
        message = _script({"crash": "exit"})
        made = await self._request("POST", "/v1/runs", {"agent_id": _AGENT, "message": message}, f"poison-{number}")
        self._record("poison", made["id"], "")

    async def _visit(self, number: int) -> None:
        """Look at a page of the console, or send a message there; each request once, as a browser does."""
        async with httpx2.AsyncClient(headers={"Sec-Fetch-Site": "same-origin"}, timeout=_TIMEOUT_S) as browser:
            url = self._fleet.console_url
            with suppress(httpx2.TransportError):
                signed_in = await browser.post(f"{url}/login", data={"key": self._fleet.guest_key})
                if signed_in.status_code != 303:
                    return
                if self._rng.random() < 0.5:
                    await browser.get(
                        url + self._rng.choice(("/", "/runs", "/chat", "/fleet", "/inbox", "/orchestrations"))
                    )
                    return
                name = f"from the console {number}"
                form = {"agent_id": _AGENT, "message": name}
                sent = await browser.post(f"{url}/chat", data=form, files={"files": ("", b"")})
                if sent.status_code == 303:
                    self._record("visit", sent.headers["location"].split("/")[2].partition("#")[0], f"You said: {name}")

    async def _decide(self) -> None:
        """Decide open calls as their keys say, again and again: a decision whose answer was lost is refused."""
        while True:
            await asyncio.sleep(_LOOK_S)
            with suppress(httpx2.TransportError, KeyError, ValueError):
                url = self._rng.choice(self._fleet.api_urls)
                waits = (await self._http.get(f"{url}/v1/waits", params={"kind": "approval"})).json()["items"]
                for wait in waits:
                    answer = {"wait_id": wait["id"], "approve": wait["request"]["params"]["key"].startswith("yes")}
                    await self._http.post(f"{url}/v1/runs/{wait['run_id']}/answers", json=answer)

    async def _request(
        self, method: str, path: str, body: Json, key: str | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        """Send a request, which may be repeated, until it succeeds."""
        headers = {**(headers or {}), **({} if key is None else {"Idempotency-Key": f"guest-{key}"})}
        while True:
            url = self._rng.choice(self._fleet.api_urls)
            with suppress(httpx2.TransportError, ValueError):
                answer = await self._http.request(method, url + path, json=body, headers=headers)
                if answer.is_success:
                    return answer.json()
                assert answer.status_code not in _REFUSED, f"{path} was refused: {answer.text}"
            await asyncio.sleep(self._rng.uniform(0.2, 1.0))

    def _record(self, kind: str, accepted: str, text: str, **fields: str) -> None:
        self._recorder.write("guest", kind=kind, id=accepted, text=text, **fields)


def _script(*items: Json) -> str:
    return json.dumps({"script": list(items)})


def _call(name: str, given: Json) -> Json:
    # While its server is away the engine would play the call, and report that it is completed.
    return {"tool": {"name": name, "input": given, "fail": "Its server is away"}}


def _complete(summary: str) -> Json:
    return _call("task_complete", {"summary": summary})


def _agent(tool_url: str) -> Json:
    server = {"type": "http", "url": tool_url}
    return {
        "id": _AGENT,
        "name": "Guest",
        "engine": "scripted",
        "trust": "sandbox",
        "capabilities": {"mcp": {"config": {"servers": {"outside": server}}}},
        "permissions": {"approvals": [{"tool": GUEST_TOOL, "decision": "ask"}]},
    }
