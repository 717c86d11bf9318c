"""The list of runs in the console: filters, and canceling many."""

from __future__ import annotations

import csv
import io
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
    for period in ("hour", "day", "month"):
        assert "running one" in (await browser.get(f"/runs?status=queued&status=running&period={period}")).text
    assert "No run fits" in (await browser.get("/runs?trigger=trg_1")).text
    for wrong, why in (
        ("since=yesterday", "is not a time"),
        ("cost=much", "no amount"),
        ("sort=up", "no order"),
        ("period=x", "is none of"),
    ):
        refused = await browser.get(f"/runs?{wrong}")
        assert refused.status_code == 422
        assert why in refused.text


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


async def test_the_list_is_sorted_by_its_headings_and_says_how_in_its_address(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    for text in ("short", "long", "open"):
        thread = await console.api.thread()
        await console.api.run(thread, text)
        if text != "open":
            await worker.play(thread)
    page = (await browser.get("/runs?agent=Nova&text=O&sort=tokens.asc")).text
    assert re.findall(r"<th[^>]* aria-sort=\"(\w+)\"><a class=\"sort\" href=\"([^\"]+)\"", page) == [
        ("ascending", "/runs?text=O&amp;agent=nova&amp;sort=tokens")
    ]
    assert 'href="/runs?text=O&amp;agent=nova&amp;sort=cost"' in page
    assert [
        len(page.partition(f">{text}</a>")[0]) > len(page.partition(">open</a>")[0]) for text in ("short", "long")
    ] == [
        False,
        False,
    ]
    # A heading asks for the largest first, then for the smallest.
    assert (
        'href="/runs?text=O&amp;agent=nova&amp;sort=cost.asc"'
        in (await browser.get("/runs?text=O&agent=nova&sort=cost")).text
    )
    assert "No run fits" in (await browser.get("/runs?text=nothing+has+this")).text


async def test_a_list_is_saved_as_a_tab_with_its_filters_and_order(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    address = "/runs?status=failed&agent=nova&version=2&period=week&sort=cost"
    assert "Save as a tab" in (await browser.get(address)).text
    fields = {"status": "failed", "agent": "nova", "version": "2", "period": "week", "sort": "cost"}
    fields["name"] = "Dear failures"
    saved = await browser.post("/runs/lists", data=fields)
    assert saved.headers["location"] == address
    page = (await browser.get("/runs")).text
    href = address.replace("&", "&amp;")
    assert f'<a href="{href}">Dear failures</a>' in page
    shown = (await browser.get(address)).text
    assert f'<a href="{href}" aria-current="page">Dear failures</a>' in shown
    ended = re.search(r'action="(/runs/lists/[^"]+/delete)"', shown)
    assert ended is not None
    assert (await browser.post(ended[1])).headers["location"] == "/runs"
    assert "Dear failures" not in (await browser.get("/runs")).text
    refused = await browser.post("/runs/lists", data={"status": "failed", "name": " "})
    assert "name" in (await browser.get(refused.headers["location"])).text


async def test_the_list_is_a_file_for_spreadsheets_in_its_order(console: Console, browser: httpx2.AsyncClient) -> None:
    for text in ("=1+1", "two, with a comma"):
        await console.api.run(await console.api.thread(), text)
    answer = await browser.get("/runs.csv?sort=created.asc&status=queued")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"].startswith('attachment; filename="runs-')
    first, second = csv.DictReader(io.StringIO(answer.text.removeprefix("\ufeff")))
    assert (first["message"], second["message"]) == ("'=1+1", "two, with a comma")
    assert (first["status"], first["finished_at"], first["cost_usd"]) == ("queued", "", "")
    assert (await browser.get("/runs.csv?status=nonsense")).status_code == 422


async def test_messages_of_selected_runs_are_sent_again_once(
    console: Console, worker: ManualWorker, browser: httpx2.AsyncClient
) -> None:
    thread = await console.api.thread()
    ended = await console.api.run(thread, "ended one")
    await worker.play(thread)
    queued = await console.api.run(thread, "queued one")
    question = (await browser.get("/runs/send-again", params={"run": [ended, queued], "sort": "cost"})).text
    assert "Send 1 message again?" in question
    assert "1 selected run is left out" in question
    form = question.partition('action="/runs/send-again"')[2].partition("</form>")[0]
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', form):
        fields.setdefault(name, []).append(value)
    for _ in range(2):
        sent = await browser.post("/runs/send-again", data=fields)
        assert sent.headers["location"] == "/runs?sort=cost"
        assert "1 sent again." in (await browser.get(sent.headers["location"])).text
    runs = (await console.api.http.get("/v1/runs", params={"thread_id": thread})).json()["items"]
    assert [run["message"][0]["text"] for run in runs] == ["ended one", "queued one", "ended one"]
    assert "Nothing to send again" in (await browser.get("/runs/send-again", params={"run": queued})).text
