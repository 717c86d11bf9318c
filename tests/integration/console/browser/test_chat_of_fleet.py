"""A chat with a real fleet: permission in place, and a worker that is killed while its answer is watched."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from nova_workers.base.config import Settings
from nova_workers.console.app import build_console
from nova_workers.contracts.http.wire import AgentCreate
from tests.chaos.conftest import SHORT_LEASES
from tests.integration.console.browser.conftest import LOOP, signed_in
from tests.support.processes.fleet import Fleet, fleet_env
from tests.support.servers.asgi import serving

pytestmark = pytest.mark.fleet

# Short, but so that a busy machine loses none of a worker that lives.
_LEASES = {**SHORT_LEASES, "NOVA_RUNS__LEASE_TTL_S": "15", "NOVA_RUNS__LEASE_RENEW_S": "3"}
_ASKER = {
    "id": "asker",
    "name": "Asker",
    "engine": "scripted",
    "capabilities": {"user": {}, "memory": {}},
    "permissions": {"approvals": [{"tool": "memory_save", "decision": "ask"}]},
}


@dataclass
class Talk:
    """A page of the console before a fleet."""

    page: Page
    fleet: Fleet

    async def begin(self, script: list[object], agent: str = "nova") -> str:
        """Send a first message to an agent; return its thread."""
        await self.page.goto(f"/chat?agent={agent}")
        await self.page.get_by_label("Message", exact=True).fill(json.dumps({"script": script}))
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url("**/chat/thr_*")
        return self.page.url.partition("/chat/")[2].partition("#")[0]


@pytest_asyncio.fixture(scope="module", loop_scope=LOOP)
async def fleet(shared_settings: Settings) -> AsyncGenerator[Fleet]:
    """A fleet whose lost workers are noticed in seconds."""
    async with Fleet(fleet_env(shared_settings) | _LEASES, workers=1, beat=True) as fleet:
        await fleet.client.agents.create(AgentCreate.model_validate(_ASKER))
        yield fleet


@pytest_asyncio.fixture(loop_scope=LOOP)
async def talk(chromium: Browser, fleet: Fleet, shared_settings: Settings) -> AsyncGenerator[Talk]:
    """A signed-in page, before the fleet."""
    app = build_console(shared_settings, api_url=fleet.api_url)
    async with serving(app, patient=True) as url, signed_in(chromium, url, fleet.api_key) as page:
        yield Talk(page, fleet)


async def test_a_call_is_approved_and_a_question_answered_where_they_are_asked(talk: Talk) -> None:
    save = {"tool": {"name": "memory_save", "input": {"content": "Tea is green"}}}
    ask = {"tool": {"name": "ask_user", "input": {"question": "**Which** tea?", "options": ["green", "black"]}}}
    thread = await talk.begin([{"say": "I note it."}, save, ask, {"say": "Done."}], agent="asker")
    card = talk.page.locator(".ask")
    await expect(card).to_contain_text("needs permission for memory_save", timeout=60_000)
    await expect(card).to_contain_text("Tea is green")
    await card.get_by_role("button", name="Approve").click()
    await expect(card.locator("strong")).to_have_text("Which", timeout=60_000)
    await card.get_by_role("button", name="black").click()
    await expect(talk.page.locator(".turn-foot")).to_be_visible(timeout=60_000)
    await expect(card).to_have_count(0)
    assert [memory.content for memory in (await talk.fleet.client.memories.list()).items] == ["Tea is green"]
    calls = (await talk.fleet.client.threads.turns(thread)).items[0].tool_calls
    assert [(call.tool_name, call.status) for call in calls] == [
        ("memory_save", "completed"),
        ("ask_user", "completed"),
    ]
    assert calls[1].result == [{"type": "text", "text": "black"}]


async def test_a_killed_worker_s_stream_ends_with_exactly_the_text_of_the_ledger(talk: Talk) -> None:
    words = " ".join(f"word{number}" for number in range(120))
    script: list[object] = [
        {"say": "First I look. "},
        {"tool": {"name": "first", "result": "done"}},
        {"say": f"Now I count: {words}. ", "tokens_per_s": 30},
        {"tool": {"name": "second", "result": "done"}},
        {"say": "The **end**."},
    ]
    thread = await talk.begin(script)
    await expect(talk.page.locator(".streamed")).to_contain_text("word20", timeout=60_000)
    talk.fleet.workers[-1].kill()
    await talk.fleet.start_worker()
    await expect(talk.page.locator(".turn-foot")).to_be_visible(timeout=120_000)
    shown = await talk.page.locator(".turn .bubble.assistant").all_inner_texts()
    messages = (await talk.fleet.client.threads.messages(thread)).items
    said = [
        block["text"]
        for message in messages
        if message.role == "assistant"
        for block in message.content
        if "text" in block
    ]
    assert [text.strip() for text in shown] == [text.strip().replace("**", "") for text in said]
    assert len([text for text in shown if "word119" in text]) == 1
    (run,) = (await talk.fleet.client.threads.runs(thread)).items
    assert run.attempt == 2
