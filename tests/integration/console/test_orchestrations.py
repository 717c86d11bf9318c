"""Orchestrations in the console."""

from __future__ import annotations

import httpx2

from tests.integration.api.manual_worker import Tenant
from tests.integration.console.conftest import Console


async def test_an_orchestration_is_started_seen_prompted_and_killed(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant
) -> None:
    assert "nova orchestrate" in (await browser.get("/orchestrations")).text
    made = await browser.post("/orchestrations/new", data={"task": "Find <b>it</b>", "agent_id": "nova"})
    address = made.headers["location"]
    page = (await browser.get(address)).text
    assert "Find &lt;b&gt;it&lt;/b&gt;" in page
    assert f'data-stream="{address}/stream"' in page
    assert 'class="tree"' in page
    agent = page.partition('id="agent-')[2].partition('"')[0]
    assert (await browser.get(f"{address}/agents/{agent}")).status_code == 200
    refused = await browser.post(f"{address}/agents/{agent}/prompt", data={"text": ""})
    assert refused.headers["location"] == address
    assert "text:" in (await browser.get(address)).text
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(address)).status_code == 404
        assert (await other.post(f"{address}/kill")).status_code == 404
    assert (await browser.post(f"{address}/kill")).status_code == 303
    killed = (await browser.get(address)).text
    assert "killed" in killed
    assert "data-stream" not in killed
    assert "killed" in (await browser.get("/orchestrations?open=no")).text


async def test_a_task_that_is_refused_keeps_what_was_typed(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post(
        "/orchestrations/new", data={"task": "Look", "agent_id": "nova", "cost_budget_usd": "much"}
    )
    assert answer.status_code == 422
    assert "Look" in answer.text
    assert 'aria-invalid="true"' in answer.text
