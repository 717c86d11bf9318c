"""One run in the console: its trace, what is selected of it, questions, and the stream of its news."""

from __future__ import annotations

import asyncio
import re
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
    # The tree has the attempt, both model calls and the tool; what is selected is in the address.
    assert [part.partition('"')[0] for part in page.split(f'class="node" href="/runs/{run_id}?at=')[1:]] == [
        *("attempt-1", "step-0", "call-0-0", "step-1"),
    ]
    tool = (await browser.get(f"/runs/{run_id}?at=call-0-0")).text
    assert "<script>three" not in tool
    assert "&lt;script&gt;three" in tool
    step = (await browser.get(f"/runs/{run_id}?at=step-1")).text
    assert "<em>files</em>" in step
    assert "are not recorded" in step
    assert (await browser.get(f"/runs/{run_id}/raw?at=step-1")).json()["request"]["message_count"] == 3
    assert (await browser.get(f"/runs/{run_id}/raw")).json()["timeline"]["step_count"] == 2
    unknown = (await browser.get(f"/runs/{run_id}?at=step-9")).text
    assert 'class="card selection"' not in unknown


async def test_a_wait_is_selected_with_the_button_that_ends_it_and_a_key_without_the_scope_sees_no_prompt(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    run_id = await console.api.run(thread, "Ask me")
    turn = await worker.claim(thread)
    await turn.suspend("One moment.", NewWait("call_1", AskUser(question="Which one?")))
    page = (await browser.get(f"/runs/{run_id}")).text
    wait_id = page.partition(f"/runs/{run_id}?at=wait-")[2].partition('"')[0]
    selected = (await browser.get(f"/runs/{run_id}?at=wait-{wait_id}")).text
    panel = selected.partition('class="card selection"')[2]
    assert "Which one?" in panel
    assert selected.count('name="wait_id"') == panel.count('name="wait_id"') == 1
    made = await console.api.http.post("/v1/keys", json={"name": "reader", "scopes": ["runs"]})
    async with console.signed_in(made.json()["key"]) as reader:
        step = (await reader.get(f"/runs/{run_id}?at=step-0")).text
        assert "One moment." in step
        assert "needs a key with the scope <code>prompts</code>" in step
        assert (await reader.get(f"/runs/{run_id}/raw?at=step-0")).json()["request"] is None


async def test_a_message_is_sent_again_with_another_text_in_a_fork(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    for text in ("First", "Second"):
        run_id = await console.api.run(thread, text)
        turn = await worker.claim(thread)
        await turn.finish("Done.")
    page = (await browser.get(f"/runs/{run_id}")).text
    assert "It is sent in a fork" in page
    sent = await browser.post(f"/runs/{run_id}/fork", data={"message": "Second, but better"})
    again = (await console.api.http.get(f"/v1{sent.headers['location']}")).json()
    assert again["message"][0]["text"] == "Second, but better"
    assert again["thread_id"] != thread
    forked = (await console.api.http.get(f"/v1/threads/{again['thread_id']}")).json()
    assert forked["turn_count"] == 1, "the turn before"
    assert forked["forked_from_turn_id"] is not None


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


@pytest.mark.parametrize("action", ["cancel", "retry", "answer", "fork"])
async def test_another_tenant_finds_no_run(action: str, console: Console, other_tenant: Tenant) -> None:
    run_id = await console.api.run(await console.api.thread(), "mine")
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(f"/runs/{run_id}")).status_code == 404
        sent = await other.post(f"/runs/{run_id}/{action}", data={"text": "x", "message": "x"})
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


async def test_a_run_is_rated_in_the_chat_and_on_its_page(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    run_id = await console.api.run(thread)
    assert 'id="feedback"' not in (await browser.get(f"/runs/{run_id}")).text
    await worker.play(thread)
    chat = (await browser.get(f"/chat/{thread}")).text
    assert f'action="/chat/{thread}/runs/{run_id}/rate"' in chat
    thumbed = await browser.post(f"/chat/{thread}/runs/{run_id}/rate", data={"score": "1"})
    assert (thumbed.status_code, thumbed.headers["location"]) == (303, f"/chat/{thread}")
    rated = await browser.post(f"/runs/{run_id}/rate", data={"score": "-1", "comment": "<b>Wrong</b> price"})
    assert rated.headers["location"] == f"/runs/{run_id}"
    page = (await browser.get(f"/runs/{run_id}")).text
    assert "rating -1" in page
    assert "&lt;b&gt;Wrong&lt;/b&gt; price" in page
    assert "rating +1" not in page, "the same person's thumb was replaced"
    versions = (await browser.get("/agents/nova/versions")).text
    assert re.findall(r">(\d+ (?:up|down))</a>", versions) == ["0 up", "1 down"]
    refused = await browser.post(f"/runs/{run_id}/rate", data={"score": "7"})
    assert refused.headers["location"] == f"/runs/{run_id}"
    assert "rating -1" in (await browser.get(f"/runs/{run_id}")).text
