"""One run in the console: the waterfall, steps, questions, and the stream of its news."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import httpx2
import pytest

from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.console.conftest import Console


def _call(result: str) -> ToolCall:
    now = datetime.now(UTC)
    return ToolCall(
        id="call_1",
        tool_name="read_file",
        params={"path": "<b>x</b>"},
        step=0,
        sequence=0,
        status="completed",
        result=(text_block(result),),
        started_at=now,
        completed_at=now,
    )


async def test_a_run_shows_what_took_time_its_steps_and_the_ledger(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    run_id = await console.api.run(thread, "Count the **files**")
    queued = (await browser.get(f"/runs/{run_id}")).text
    assert "queued" in queued
    assert f'data-stream="/runs/{run_id}/stream"' in queued
    turn = await worker.claim(thread)
    await turn.commit("Let me look.", _call("<script>three</script>"))
    await turn.finish("Three *files*.")
    page = (await browser.get(f"/runs/{run_id}")).text
    assert "data-stream" not in page
    assert page.count('<svg class="bar"') >= 4
    assert "<em>files</em>" in page
    assert "read_file" in page
    assert "<script>three" not in page
    assert "Timeline" in page


async def test_news_of_an_open_run_renew_the_page_until_its_end(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    run_id = await console.api.run(thread, "Hello")
    turn = await worker.claim(thread)

    async def read() -> str:
        async with browser.stream("GET", f"/runs/{run_id}/stream") as answer:
            return "".join([piece async for piece in answer.aiter_text()])

    reading = asyncio.create_task(read())
    await turn.commit("First part.")
    await turn.finish("The answer.")
    seen = await asyncio.wait_for(reading, 60)
    assert '["renew",' in seen
    assert "event: done" in seen


@pytest.mark.parametrize("only_options", [False, True])
async def test_a_question_is_answered_on_the_page(
    only_options: bool, console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    run_id = await console.api.run(thread, "Ask me")
    turn = await worker.claim(thread)
    wait = NewWait("call_1", AskUser(question="Which one?", options=("red", "blue"), only_options=only_options))
    await turn.suspend("One moment.", wait)
    page = (await browser.get(f"/runs/{run_id}")).text
    assert "Which one?" in page
    # What it shows of a run that waits is as true as of one that ended.
    assert "<dt>Steps</dt><dd>1</dd>" in page
    assert "1 tool call<" in page
    assert "<dt>Took</dt><dd><span data-since=" in page
    wait_id = page.partition('name="wait_id" value="')[2].partition('"')[0]
    assert ("Another answer" in page) is not only_options
    answered = await browser.post(f"/runs/{run_id}/answer", data={"wait_id": wait_id, "text": "green"})
    page = (await browser.get(answered.headers["location"])).text
    assert ("Which one?</h2>" in page) is only_options
    if only_options:
        assert "is not one of the options" in page
        await browser.post(f"/runs/{run_id}/answer", data={"wait_id": wait_id, "option": "blue"})
        assert "Which one?</h2>" not in (await browser.get(f"/runs/{run_id}")).text


@pytest.mark.parametrize("action", ["cancel", "retry", "answer"])
async def test_another_tenant_finds_no_run(action: str, console: Console, other_tenant: Tenant) -> None:
    run_id = await console.api.run(await console.api.thread(), "mine")
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(f"/runs/{run_id}")).status_code == 404
        sent = await other.post(f"/runs/{run_id}/{action}", data={"text": "x"})
        assert sent.status_code == 404


async def test_a_queued_run_is_canceled_and_sent_again(console: Console, browser: httpx2.AsyncClient) -> None:
    run_id = await console.api.run(await console.api.thread(), "Never mind")
    await browser.post(f"/runs/{run_id}/cancel")
    assert "canceled" in (await browser.get(f"/runs/{run_id}")).text
    page = (await browser.get(f"/runs/{run_id}")).text
    key = {"key": page.partition('name="key" value="')[2].partition('"')[0]}
    again = (await browser.post(f"/runs/{run_id}/retry", data=key)).headers["location"]
    assert (await browser.post(f"/runs/{run_id}/retry", data=key)).headers["location"] == again
    assert again != f"/runs/{run_id}"
    assert "Never mind" in (await browser.get(again)).text
