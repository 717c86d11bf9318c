"""Notes, memories, files and the inbox in the console."""

from __future__ import annotations

import re

import httpx2
import pytest

from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import Tenant
from tests.integration.console.conftest import Console

_NOTE = {"agent_id": "nova", "title": "House rules", "content": "Be **brief**.", "shared": "on"}


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/notes", "nova notes"),
        ("/memories", "nova memories create"),
        ("/files", "nova files"),
        ("/inbox", "nova inbox"),
    ],
)
async def test_an_empty_list_names_the_command(path: str, command: str, browser: httpx2.AsyncClient) -> None:
    answer = await browser.get(path)
    assert answer.status_code == 200
    assert command in answer.text


@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("/runs", "/chat"),
        ("/notes", "/notes/new"),
        ("/tasks", "/tasks/new"),
        ("/triggers", "/triggers/new"),
        ("/webhooks", "/webhooks/new"),
        ("/orchestrations", "/orchestrations/new"),
        ("/files", "/chat"),
        ("/skills", "/skills/~new"),
    ],
)
async def test_an_empty_list_has_the_button_before_the_command(
    path: str, button: str, browser: httpx2.AsyncClient
) -> None:
    empty = (await browser.get(path)).text.partition('<div class="empty">')[2].partition("</div></div>")[0]
    before, command, _ = empty.partition('<p class="command">')
    assert command
    assert f'<a class="button primary" href="{button}">' in before
    if path not in {"/webhooks", "/skills", "/tasks"}:
        shown = (await browser.get(f"{path}?agent=nothing")).text
        assert f'<a class="button" href="{path}">Clear the filters</a>' in shown


async def test_what_waits_says_why_and_has_the_button_that_ends_it(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    run_id = await console.api.run(await console.api.thread(), "Hello")
    page = (await browser.get(f"/runs/{run_id}")).text
    assert re.search(r"Waits for [^<]+\.</span><form method=\"post\" action=\"/runs/run_\w+/kick\"", page)
    kicked = await browser.post(f"/runs/{run_id}/kick")
    assert "looks after the run now" in (await browser.get(kicked.headers["location"])).text
    await browser.post("/tenant/pause", data={"agent_id": "nova", "reason": "Too loud"})
    for path in ("/", "/fleet", "/tenant"):
        assert re.search(r"Too loud .*action=\"/tenant/resume\"", (await browser.get(path)).text), path
    await browser.post("/tenant/resume", data={"scope": "agent", "agent_id": "nova"})
    assert "Too loud" not in (await browser.get("/")).text


async def test_a_note_is_written_read_changed_and_deleted(console: Console, browser: httpx2.AsyncClient) -> None:
    made = await browser.post("/notes/new", data=_NOTE)
    assert made.status_code == 303
    address = made.headers["location"]
    shown = (await browser.get(address)).text
    assert "House rules" in shown
    assert "<strong>brief</strong>" in shown
    await browser.post(f"{address}/edit", data={"title": "Rules", "content": "<script>x</script>"})
    changed = (await browser.get(address)).text
    assert "<script>x" not in changed
    assert "only its agent" in changed
    assert (await browser.post(f"{address}/delete")).headers["location"] == "/notes"
    assert (await browser.get(address)).status_code == 404


async def test_a_note_that_was_changed_meanwhile_is_not_overwritten_unseen(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    address = (await browser.post("/notes/new", data=_NOTE)).headers["location"]
    opened = (await browser.get(f"{address}/edit")).text
    known = opened.partition('name="updated_at" value="')[2].partition('"')[0]
    note = address.rpartition("/")[2]
    await console.api.http.patch(f"/v1/notes/{note}", json={"content": "What an agent added."})
    mine = {**_NOTE, "content": "What I wrote.", "pinned": "on", "updated_at": known}
    clash = await browser.post(f"{address}/edit", data=mine)
    assert clash.status_code == 409
    assert "What I wrote.</textarea>" in clash.text
    assert '<pre class="result" tabindex="0">What an agent added.' in clash.text
    again = clash.text.partition('name="updated_at" value="')[2].partition('"')[0]
    assert (await browser.post(f"{address}/edit", data={**mine, "updated_at": again})).status_code == 303
    stored = (await console.api.http.get(f"/v1/notes/{note}")).json()
    assert (stored["content"], stored["pinned"]) == ("What I wrote.", True)
    stale = {"pinned": False, "updated_at": known}
    refused = await console.api.http.patch(f"/v1/notes/{note}", json=stale)
    assert (refused.status_code, refused.json()["code"]) == (412, "version_mismatch")


async def test_a_note_that_is_refused_keeps_what_was_typed(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post("/notes/new", data={**_NOTE, "title": ""})
    assert answer.status_code == 422
    assert "Be **brief**." in answer.text
    assert 'aria-invalid="true"' in answer.text


async def test_the_preview_is_rendered_like_the_note(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post("/notes/preview", data={"content": "*so* <img src=x onerror=y>"})
    assert "<em>so</em>" in answer.text
    assert "<img" not in answer.text


async def test_another_tenant_finds_no_note_and_no_file(
    console: Console, other_tenant: Tenant, browser: httpx2.AsyncClient
) -> None:
    address = (await browser.post("/notes/new", data=_NOTE)).headers["location"]
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(address)).status_code == 404
        assert (await other.post(f"{address}/delete")).status_code == 404
        assert (await other.get("/files/file_01J00000000000000000000000/content")).status_code == 404
    assert (await browser.get(address)).status_code == 200


async def test_a_memory_is_saved_found_and_forgotten(browser: httpx2.AsyncClient) -> None:
    await browser.post("/memories", data={"content": "Releases are on Thursdays."})
    assert "Releases are on" in (await browser.get("/memories?contains=Thursday")).text
    page = (await browser.get("/memories")).text
    action = page.partition('action="/memories/')[2].partition('"')[0]
    await browser.post(f"/memories/{action}")
    assert "Releases are on" not in (await browser.get("/memories")).text
    assert (await browser.post("/memories", data={"content": " "})).status_code == 422


_TRIGGER = {
    "agent_id": "nova",
    "kind": "cron",
    "schedule": "0 9 * * 1-5",
    "timezone": "Europe/Berlin",
    "prompt": "What is **new**?",
    "action": "run",
    "overlap": "skip",
    "catchup": "once",
    "enabled": "on",
}


async def test_a_trigger_is_made_fired_changed_and_deleted(browser: httpx2.AsyncClient) -> None:
    assert "nova triggers create" in (await browser.get("/triggers")).text
    address = (await browser.post("/triggers/new", data=_TRIGGER)).headers["location"]
    page = (await browser.get(address)).text
    assert "Europe/Berlin" in page
    assert "<strong>new</strong>" in page
    assert page.count('class="next"') == 10
    assert re.search(r'<a class="quiet" href="/agents/nova"><span class="agent [^>]*>Nova</span></a>', page)
    assert "<dd>a person</dd>" in page
    await browser.post(f"{address}/fire")
    fired = (await browser.get(address)).text
    assert "by hand" in fired
    assert 'class="started"' in fired
    await browser.post(f"{address}/edit", data={**_TRIGGER, "title": "News", "schedule": "0 10 * * *"})
    assert "0 10 * * *" in (await browser.get("/triggers")).text
    await browser.post(f"{address}/switch", data={"enabled": "no"})
    assert "As if it were enabled" in (await browser.get(address)).text
    await browser.post(f"{address}/delete")
    assert (await browser.get(address)).status_code == 410


async def test_a_trigger_that_has_fired_is_retitled_and_one_that_is_due_stays_due(
    console: Console, browser: httpx2.AsyncClient, database: Database
) -> None:
    once = {**_TRIGGER, "kind": "at", "at": "2100-01-01T10:00"}
    address = (await browser.post("/triggers/new", data=once)).headers["location"]
    trigger = address.rpartition("/")[2]
    await database.execute(
        "UPDATE triggers SET schedule = '2020-01-01T09:00:00Z', next_slot_at = now() - interval '1 s', "
        "next_fire_at = now() - interval '1 s' WHERE id = :id",
        id=trigger,
    )
    before = (await console.api.http.get(f"/v1/triggers/{trigger}")).json()
    past = {**once, "at": "2020-01-01T10:00", "title": "Once"}
    assert (await browser.post(f"{address}/edit", data=past)).status_code == 303
    after = (await console.api.http.get(f"/v1/triggers/{trigger}")).json()
    assert (after["title"], after["next_slot_at"]) == ("Once", before["next_slot_at"])


async def test_a_trigger_fires_once_at_a_local_time_of_the_chosen_zone(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    new = (await browser.get("/triggers/new")).text
    assert 'type="datetime-local"' in new
    assert '<option value="Asia/Kathmandu">' in new
    once = {**_TRIGGER, "kind": "at", "schedule": "", "at": "2031-07-01T09:00", "starts_at": "2031-06-30T23:30"}
    address = (await browser.post("/triggers/new", data=once)).headers["location"]
    path = f"/v1{address}"
    stored = (await console.api.http.get(path)).json()
    assert (stored["schedule"], stored["starts_at"]) == ("2031-07-01T07:00:00Z", "2031-06-30T21:30:00Z")
    shown = "Tue 2031-07-01 09:00 UTC+02:00 = Tue 2031-07-01 07:00 UTC"
    assert shown in (await browser.get(address)).text
    assert shown in (await browser.get("/triggers")).text
    edit = (await browser.get(f"{address}/edit")).text
    assert 'value="2031-07-01T09:00"' in edit
    assert shown in edit
    # An unchanged field keeps its instant: the second of two equal times, and seconds.
    await console.api.http.patch(path, json={"schedule": "2031-10-26T01:30:15Z"})
    kept = {**once, "at": "2031-10-26T02:30:15", "title": "Autumn"}
    assert 'value="2031-10-26T02:30:15" step="1"' in (await browser.get(f"{address}/edit")).text
    assert (await browser.post(f"{address}/edit", data=kept)).status_code == 303
    assert (await console.api.http.get(path)).json()["schedule"] == "2031-10-26T01:30:15Z"
    for wrong, why in (
        ({"at": "2031-03-30T02:30"}, "never show 2031-03-30 02:30"),
        ({"at": ""}, "Give the date and the time"),
        ({"at": "2131-01-01T00:00"}, "is not between the years"),
        ({"timezone": "Mars/Olympus"}, "is not a time zone"),
    ):
        refused = await browser.post(f"{address}/edit", data={**once, **wrong})
        assert (refused.status_code, why in refused.text) == (422, True), refused.text
    asked = await browser.get("/local-time", params={"at": "2031-10-26T02:30", "timezone": "Europe/Berlin"})
    assert "00:30 UTC" in asked.text
    assert "the first of both" in asked.text


async def test_a_schedule_that_is_refused_is_shown_at_its_field(browser: httpx2.AsyncClient) -> None:
    answer = await browser.post("/triggers/new", data={**_TRIGGER, "schedule": "whenever"})
    assert answer.status_code == 422
    assert "whenever" in answer.text
    assert "What is **new**?" in answer.text


async def test_a_task_is_planned_worked_on_and_completed(
    browser: httpx2.AsyncClient, other_tenant: Tenant, console: Console
) -> None:
    assert "nova tasks create" in (await browser.get("/tasks")).text
    given = {"title": "Notes", "steps": "Collect\n\nWrite", "owner_agent_id": "nova", "status": "draft"}
    address = (await browser.post("/tasks/new", data=given)).headers["location"]
    page = (await browser.get(address)).text
    step = page.partition('name="step" value="')[2].partition('"')[0]
    for action in (
        {"do": "tick", "step": step, "done": "yes"},
        {"do": "add_step", "title": "Publish"},
        {"do": "add_resource", "kind": "url", "value": "https://example.org/x"},
        {"do": "activate"},
    ):
        assert (await browser.post(address, data=action)).status_code == 303
    shown = (await browser.get(address)).text
    assert "Publish" in shown
    assert "https://example.org/x" in shown
    assert 'value="1"' in (await browser.get("/tasks")).text
    stale = {"do": "edit", "title": "Typed here", "description": "", "owner_agent_id": "nova", "revision": "1"}
    clash = await browser.post(address, data=stale)
    assert clash.status_code == 422
    assert 'value="Typed here"' in clash.text
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(address)).status_code == 404
        assert (await other.post(address, data={"do": "complete"})).status_code == 404
    await browser.post(address, data={"do": "complete", "outcome": "Published."})
    assert "Published." in (await browser.get(address)).text
    assert "Notes" in (await browser.get("/tasks/list?status=done")).text
    assert (await browser.post(address, data={"do": "nothing"})).status_code == 404


async def test_a_schedule_is_built_of_days_and_a_time_and_previewed(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    built = {"kind": "weekly", "day": ["1", "3"], "time": "09:30", "timezone": "Europe/Berlin"}
    shown = (await browser.get("/triggers/preview", params=built)).text
    assert "Fires on Monday and Wednesday at 09:30, Europe/Berlin time." in shown
    assert shown.count("<li>") == 5
    assert "Working hours" in shown
    wrong = (await browser.get("/triggers/preview", params={"kind": "cron", "schedule": "0 99 * * *"})).text
    assert "99" in wrong
    made = await browser.post("/triggers/new", data={**_TRIGGER, **built})
    trigger = made.headers["location"]
    stored = (await console.api.http.get(f"/v1{trigger}")).json()
    assert (stored["kind"], stored["schedule"]) == ("cron", "30 9 * * 1,3")
    assert "On Monday and Wednesday at 09:30" in (await browser.get(trigger)).text
    form = (await browser.get(f"{trigger}/edit")).text
    assert '<option value="weekly" selected>' in form
    assert 'value="09:30"' in form
    refused = await browser.post("/triggers/new", data={**_TRIGGER, **built, "day": []})
    assert refused.status_code == 422
    assert "Choose at least one day." in refused.text
