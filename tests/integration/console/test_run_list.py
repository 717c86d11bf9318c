"""The list of runs in the console: filters, and canceling many."""

from __future__ import annotations

import re
from html import unescape

import httpx2

from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.console.conftest import Console


def _fields(page: str) -> list[tuple[str, str]]:
    """Return the hidden fields of the form that cancels."""
    form = page.partition('<form method="post" action="/runs/cancel"')[2].partition("</form>")[0]
    return [(unescape(name), unescape(value)) for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', form)]


async def test_runs_are_filtered_by_several_states_and_a_time(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    await console.api.run(thread, "ended one")
    await worker.play(thread)
    await console.api.run(thread, "running one")
    await worker.claim(thread)
    await console.api.run(thread, "queued one")
    page = (await browser.get("/runs?status=queued&status=running")).text
    assert "queued one" in page
    assert "running one" in page
    assert "ended one" not in page
    assert page.count("checked>") == 2
    assert "No run fits" in (await browser.get("/runs?until=2026-01-01T00:00&status=queued")).text
    recent = unescape(page.partition('class="periods"><a href="')[2].partition('"')[0])
    assert recent.startswith("/runs?status=queued&status=running&since=")
    assert "running one" in (await browser.get(recent)).text
    assert "No run fits" in (await browser.get("/runs?trigger=trg_1")).text
    refused = await browser.get("/runs?since=yesterday")
    assert refused.status_code == 422
    assert "is not a time" in refused.text


async def test_selected_runs_are_canceled_after_a_question_that_counts_them(
    console: Console, other_tenant: Tenant, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    ids = [await console.api.run(thread, f"message {at}") for at in range(3)]
    assert f'value="{ids[0]}" form="bulk"' in (await browser.get("/runs")).text
    question = (await browser.get("/runs/cancel", params={"run": ids[:2], "status": "queued"})).text
    assert "Cancel 2 runs?" in question
    fields = _fields(question)
    async with console.signed_in(other_tenant.key) as other:
        sent = await other.post("/runs/cancel", data=dict(fields))
        assert "No open run was left" in (await other.get(sent.headers["location"])).text
    sent = await browser.post("/runs/cancel", data={"run": ids[:2], "status": "queued"})
    assert sent.headers["location"] == "/runs?status=queued"
    page = (await browser.get(sent.headers["location"])).text
    assert "2 canceled." in page
    assert "message 2" in page
    assert "message 0" not in page
    assert "Nothing to cancel" in (await browser.get("/runs/cancel")).text


async def test_all_that_match_are_canceled_but_not_what_is_submitted_after_the_question(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    mine, other = await console.api.thread(), await console.api.thread()
    await console.api.run(mine, "running")
    await worker.claim(mine)
    await console.api.run(mine, "queued")
    await console.api.run(other, "elsewhere")
    question = (await browser.get(f"/runs/cancel?thread={mine}&all=yes")).text
    assert "Cancel 2 runs?" in question
    assert "1 run has not begun" in question
    await console.api.run(mine, "later")
    sent = await browser.post("/runs/cancel", data=dict(_fields(question)))
    assert sent.headers["location"] == f"/runs?thread={mine}"
    assert "1 canceled; 1 had begun" in (await browser.get(sent.headers["location"])).text
    left = (await browser.get("/runs?status=queued")).text
    assert "later" in left
    assert "elsewhere" in left
    assert "Nothing to cancel" in (await browser.get(f"/runs/cancel?thread={mine}&all=yes&status=failed")).text
