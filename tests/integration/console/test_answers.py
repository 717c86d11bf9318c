"""Answers of people: the same on a run's page, in the inbox and in the chat."""

from __future__ import annotations

import httpx2

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.runs import TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import AskApproval
from nova_workers.domain.waits.sql.suspend import NewWait, suspend_run
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.console.conftest import Console


async def _asks_permission(console: Console, worker: ManualWorker) -> tuple[str, str]:
    """Make a run that waits for a person's permission; return its thread and its id."""
    thread = await console.api.thread()
    run_id = await console.api.run(thread, "Delete it")
    turn = await worker.claim(thread)
    params: JsonObject = {"path": "/srv/<b>all</b>"}
    await turn.commit("I delete it.", ToolCall("call_1", "remove", params, step=0, sequence=0, status="pending"))
    wait = NewWait("call_1", AskApproval(tool_name="remove", params=params, reason="It deletes."))
    async with worker.database.connection() as connection:
        await suspend_run(connection, turn.claim, (wait,), TokenUsage(), TurnFacts("unified", "sandbox", {}))
    return thread, run_id


async def test_a_call_is_denied_with_a_reason_wherever_it_is_shown(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    for place in ("run", "inbox", "chat"):
        thread, run_id = await _asks_permission(console, worker)
        address = {"run": f"/runs/{run_id}", "inbox": "/inbox", "chat": f"/chat/{thread}"}[place]
        page = (await browser.get(address)).text
        assert 'name="approve" value="no"' in page
        assert "/srv/&lt;b&gt;all" in page
        action = page.partition('<form method="post" action="')[2]
        while "/answer" not in action.partition('"')[0]:
            action = action.partition('<form method="post" action="')[2]
        form = {"approve": "no", "text": "Not that one"}
        if place != "inbox":
            form["wait_id"] = page.partition('name="wait_id" value="')[2].partition('"')[0]
        assert (await browser.post(action.partition('"')[0], data=form)).status_code == 303
        timeline = (await console.api.http.get(f"/v1/runs/{run_id}/timeline")).json()
        answer = timeline["waits"][0]["answer"]
        assert (answer["approve"], answer["text"]) == (False, "Not that one"), place


async def test_an_empty_answer_is_refused_beside_its_form_and_on_the_page(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread, run_id = await _asks_permission(console, worker)
    path = f"/chat/{thread}/runs/{run_id}/answer"
    by_script = await browser.post(path, data={"text": " "}, headers={"Nova-Fragment": "form"})
    assert (by_script.status_code, by_script.text) == (422, "Write an answer.")
    plain = await browser.post(path, data={"text": " "})
    assert plain.headers["location"] == f"/chat/{thread}"
    assert "Write an answer." in (await browser.get(f"/chat/{thread}")).text
