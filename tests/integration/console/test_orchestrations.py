"""Orchestrations in the console."""

from __future__ import annotations

import httpx2

from tests.integration.api.manual_worker import Tenant
from tests.integration.console.conftest import Console


async def test_an_orchestration_is_started_seen_prompted_and_killed(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant
) -> None:
    assert "nova orchestrate" in (await browser.get("/orchestrations")).text
    key = (await browser.get("/orchestrations/new")).text.partition('name="key" value="')[2].partition('"')[0]
    task = {"task": "Find <b>it</b>", "agent_id": "nova", "key": key}
    made = await browser.post("/orchestrations/new", data=task)
    address = made.headers["location"]
    assert (await browser.post("/orchestrations/new", data=task)).headers["location"] == address
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


async def test_the_configuration_is_stored_in_versions_restored_and_refused_with_each_error(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant
) -> None:
    path = "/orchestrations/configuration"
    assert "nova orchestrations config set" in (await browser.get(path)).text
    first = {"text": "engine:\n  max_agent_depth: 3\n", "models_text": "", "version": "0"}
    assert (await browser.post(path, data=first)).headers["location"] == path
    second = {"text": "engine:\n  max_agent_depth: 4\n", "models_text": "", "version": "1"}
    await browser.post(path, data=second)
    page = (await browser.get(path)).text
    assert "max_agent_depth: 4" in page
    assert f'href="{path}/1"' in page
    wrong = await browser.post(path, data={"text": "engine:\n  max_agent_dept: 4\n<b>", "version": "2"})
    assert wrong.status_code == 422
    assert "max_agent_dept: 4\n&lt;b&gt;" in wrong.text
    assert "orchestration.yaml:" in wrong.text
    stale = await browser.post(path, data={**first, "version": "1"})
    assert stale.status_code == 422
    assert "max_agent_depth: 3" in stale.text
    old = (await browser.get(f"{path}/1")).text
    assert '<span class="mark">+</span>  max_agent_depth: 3' in old
    assert "Restore" in old
    assert (await browser.get(f"{path}/9")).status_code == 404
    async with console.signed_in(other_tenant.key) as other:
        assert "max_agent_depth" not in (await other.get(path)).text


async def test_models_are_listed_with_their_scores_for_a_kind_of_work(browser: httpx2.AsyncClient) -> None:
    config = {"text": "model_registry:\n  tiny-1: {provider: claude, tier: economy, affinities: {coding: 0.99}}\n"}
    await browser.post("/orchestrations/configuration", data={**config, "version": "0"})
    page = (await browser.get("/orchestrations/models?for=coding&show=all")).text
    row = page.partition('id="row-tiny-1"')[2].partition("</tr>")[0]
    assert "economy" in row
    assert "0.99" in row
    assert "No model is asked" in page
