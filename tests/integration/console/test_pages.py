"""The pages of the console, as a person with a key sees them."""

from __future__ import annotations

import asyncio
import re

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.console.app import build_console
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.console.conftest import Console
from tests.support.servers.asgi import serving
from tests.support.waiting import until


@pytest.mark.parametrize("path", ["/", "/runs"])
async def test_a_page_renders_without_anything_in_the_fleet(path: str, browser: httpx2.AsyncClient) -> None:
    answer = await browser.get(path)
    assert answer.status_code == 200
    assert "nova send" in answer.text


async def test_runs_are_listed_with_what_was_asked_and_filtered(console: Console, browser: httpx2.AsyncClient) -> None:
    thread = await console.api.thread()
    await console.api.run(thread, "Which <b>birds</b> can swim?")
    page = (await browser.get("/runs")).text
    assert "Which &lt;b&gt;birds&lt;/b&gt; can swim?" in page
    assert "queued" in page
    assert "No run fits" in (await browser.get("/runs?status=failed")).text


async def test_home_says_why_runs_are_queued_and_plots_by_agent_and_model(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient, database: Database
) -> None:
    thread = await console.api.thread()
    await console.api.run(thread, "first")
    await worker.play(thread)
    await console.api.run(thread, "second", queue="background")
    page = (await browser.get("/")).text
    assert "no worker of this queue is alive" in page
    assert 'href="/runs?status=queued&amp;queue=background"' in page
    assert "Runs that ended, by hour" in page
    # Where a key sees no workers, only this says what ends it.
    async with console.signed_in((await make_tenant(database, ("runs",), console.api.tenant.id)).key) as other:
        assert "<code>nova worker --queues background</code>" in (await other.get("/fleet")).text
    by_agent = (await browser.get("/?by=agent&over=hour")).text
    assert "Runs that ended, by minute and agent" in by_agent
    assert '<li class="c0" data-initial="N">Nova <strong>1</strong></li>' in by_agent
    assert "Model calls, by day and model" in (await browser.get("/?by=model&over=month")).text
    assert "Runs that ended, by hour" in (await browser.get("/?by=nonsense&over=century")).text


async def test_home_says_how_the_fleet_stands_and_what_to_do_first(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    page = (await browser.get("/")).text
    assert "First steps" in page
    assert 'id="home-health"' in page
    steps = page.partition('class="steps"')[2].partition("</ol>")[0]
    assert [href for href in ("/chat", "/agents/~new", "/triggers/new", "/connect") if f'href="{href}"' in steps] == [
        "/chat",
        "/agents/~new",
        "/triggers/new",
        "/connect",
    ]
    assert steps.count('class="done"') == 0
    thread = await console.api.thread()
    for _ in range(6):
        await console.api.run(thread, queue="background")
    page = (await browser.get("/")).text
    assert "First steps" not in page


async def test_the_menu_has_six_entries_and_more_with_numbers_of_what_is_open(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    menu = (await browser.get("/fleet")).text.partition("<main")[0]
    main = menu.partition('<ul class="nav-main">')[2].partition("</ul>")[0]
    assert re.findall(r'<li><a href="([^"]+)"', main) == ["/", "/chat", "/runs", "/inbox", "/agents", "/triggers"]
    # The page that is shown is in view.
    assert "data-nav-more open" in menu
    home = (await browser.get("/")).text.partition("<main")[0]
    assert "data-nav-more>" in home

    async def shown(number: str) -> bool:
        # A page does not wait for numbers for longer than a second.
        return f'<span class="count" data-count-of="/runs"{number}' in (await browser.get("/")).text

    await until(lambda: shown(" hidden>0"))
    thread = await console.api.thread()
    await console.api.run(thread)
    await worker.claim(thread)
    await until(lambda: shown(">1<"))


async def test_the_palette_finds_actions_agents_conversations_and_runs(
    console: Console, browser: httpx2.AsyncClient, database: Database, tenant: Tenant
) -> None:
    thread = await console.api.thread(title="A new Nova plan")
    run = await console.api.run(thread, "what is new about nova?")
    found = (await browser.get("/palette", params={"q": "NOVA"})).json()
    assert [(each["title"], each["note"], each["href"]) for each in found] == [
        ("Nova", "agent", "/agents/nova"),
        ("A new Nova plan", "conversation", f"/chat/{thread}"),
        ("what is new about nova?", "run, queued", f"/runs/{run}"),
    ]
    actions = (await browser.get("/palette", params={"q": "new a"})).json()
    assert ("New agent", "/agents/~new") in [(each["title"], each["href"]) for each in actions]
    assert (await browser.get("/palette", params={"q": "n"})).json() == []
    limited = await make_tenant(database, ("workspace",), tenant.id)
    async with console.signed_in(limited.key) as other:
        notes = [each["note"] for each in (await other.get("/palette", params={"q": "nova"})).json()]
        assert notes == []


async def test_a_list_has_pages(console: Console, browser: httpx2.AsyncClient) -> None:
    thread = await console.api.thread()
    for at in range(51):
        await console.api.run(thread, f"question {at}")
    first = (await browser.get("/runs?status=queued")).text
    assert "question 50" in first
    assert "question 0<" not in first
    older = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "status=queued" in older
    second = (await browser.get(older)).text
    assert "question 0<" in second
    assert "Newest" in second


async def test_a_filter_that_the_api_refuses_is_a_page_with_its_message(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/runs?status=nonsense")
    assert answer.status_code == 422
    assert "status" in answer.text


async def test_another_tenants_runs_are_not_shown(
    console: Console, other_tenant: Tenant, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    await console.api.run(thread, "only mine")
    async with console.signed_in(other_tenant.key) as other:
        assert "only mine" not in (await other.get("/runs")).text
        assert (await other.get(f"/runs?thread={thread}")).status_code in {200, 404}
    assert "only mine" in (await browser.get("/runs")).text


async def test_a_key_without_a_scope_sees_which_scope_a_page_needs(
    console: Console, database: Database, tenant: Tenant
) -> None:
    limited = await make_tenant(database, ("workspace",), tenant.id)
    async with console.signed_in(limited.key) as browser:
        answer = await browser.get("/runs")
        assert answer.status_code == 403
        assert "needs a key with the scope <strong>runs:read</strong>" in answer.text


async def test_an_unknown_address_is_a_page_of_the_console(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/nowhere")
    assert answer.status_code == 404
    assert "There is no page at" in answer.text


async def test_a_fleet_that_is_down_is_a_page_that_tries_again(
    settings: Settings, console: Console, browser: httpx2.AsyncClient
) -> None:
    app = build_console(settings, api_url="http://127.0.0.1:1")
    async with serving(app, patient=True) as url, httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as lost:
        lost.cookies.update(browser.cookies)
        answer = await lost.get("/runs")
        assert answer.status_code == 503
        assert "http://127.0.0.1:1" in answer.text
        assert "data-retry" in answer.text
        # A part of a page fails as the page does: it is tried again, and not loaded to show a fault of the console.
        assert (await lost.get("/runs", headers={"Nova-Fragment": "refresh"})).status_code == 503
        async with lost.stream("GET", "/changes") as stream:
            lines = stream.aiter_lines()
            async with asyncio.timeout(60):
                while (line := await anext(lines)) != 'data: [["show","away",""]]':
                    assert not line.startswith("data"), line


async def test_the_theme_is_kept_by_the_browser(browser: httpx2.AsyncClient) -> None:
    assert (await browser.post("/theme", data={"theme": "dark", "next": "/runs"})).headers["location"] == "/runs"
    assert 'data-theme="dark"' in (await browser.get("/runs")).text
