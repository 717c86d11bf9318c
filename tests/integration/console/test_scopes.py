"""Keys with few scopes in the console: every page that they may use is there, without what they may not see."""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import get_args

import httpx2
import pytest
from starlette.routing import Route

from nova_workers.base.vocabulary import AccessRole
from nova_workers.console.pages import PAGES
from nova_workers.console.rights import needed
from nova_workers.contracts.http.scopes import ROLES, Scope, with_included
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import ManualWorker, make_tenant
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.waiting import until

_MOST_PAGES = 200
_PAGES = {
    "runs": ("/chat", "/search", "/runs", "/orchestrations/new", "/work-orders"),
    "workspace": ("/triggers/new", "/notes/new", "/tasks/new", "/files"),
    "agents": ("/agents", "/agents/nova"),
}


async def test_a_key_uses_every_page_of_its_only_scope(console: Console, database: Database) -> None:
    thread = await console.api.thread()
    for scope, pages in _PAGES.items():
        key = (await make_tenant(database, (scope,), console.api.tenant.id)).key
        async with console.signed_in(key) as browser:
            for path in ("/", "/tenant", "/fleet", *pages, *((f"/chat/{thread}",) if scope == "runs" else ())):
                answer = await browser.get(path)
                assert answer.status_code == 200, (scope, path, answer.text)
                assert "No worker is alive" not in answer.text
            if scope == "runs":
                sent = await browser.post(
                    "/chat", data={"agent_id": "nova", "message": "Hello"}, files={"files": ("", b"")}
                )
                assert sent.status_code == 303


@proves("console.menu")
async def test_the_menu_has_the_pages_that_the_key_may_read(console: Console, database: Database) -> None:
    entries = [entry for module in PAGES for entry in module.nav]
    for scope in get_args(Scope):
        key = (await make_tenant(database, (scope,), console.api.tenant.id)).key
        async with console.signed_in(key) as browser:
            menu = (await browser.get("/connect")).text.partition("<main")[0]
            for entry in entries:
                # Without a question the page of the search only asks for one.
                answer = await browser.get(entry.path, params={"q": "x"} if entry.path == "/search" else None)
                is_shown = f'<li><a href="{entry.path}"' in menu
                assert (answer.status_code, is_shown) in {(200, True), (403, False)}, (scope, entry.path)
                assert answer.text.partition("<main")[0].count("<li><a") == menu.count("<li><a"), entry.path


async def test_a_check_that_fails_is_shown_on_the_page_of_the_fleet(
    database: Database, console: Console, browser: httpx2.AsyncClient
) -> None:
    # Until the API has seen a schema that fits it would refuse all.
    await until(lambda: console.api.state.services.schema.fits)
    for _ in range(3):
        # A look of another part of it may be under way.
        assert await console.api.state.services.schema.look()
    await database.execute("UPDATE alembic_version SET version_num = '0001'")
    answer = await browser.get("/fleet")
    assert answer.status_code == 200
    assert "nova migrate" in answer.text


def test_each_form_of_the_console_has_the_scope_that_it_needs() -> None:
    routes = [route for page in PAGES for route in page.routes if isinstance(route, Route)]
    forms = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(forms) > 60
    assert [path for path in forms if needed(path) is None] == ["/login", "/logout", "/theme"]


@proves("console.rights")
@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_a_key_sees_no_button_and_no_link_that_is_refused(
    console: Console, worker: ManualWorker, database: Database, role: AccessRole
) -> None:
    await _fill(console, worker)
    key = (await make_tenant(database, ROLES[role], console.api.tenant.id)).key
    held = with_included(ROLES[role])
    seen, to_see, forms = set[str](), [("/", "")], Counter[str]()
    refused: list[tuple[str, str]] = []
    async with console.signed_in(key) as browser:
        while to_see and len(seen) < _MOST_PAGES:
            path, linked_from = to_see.pop(0)
            answer = await browser.get(path)
            if answer.status_code not in {200, 303}:
                refused.append((path, linked_from))
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            for form, action in re.findall(r'(<form method="post"(?:[^>]*? action="([^"]*)")?[^>]*>)', answer.text):
                # A form that is only shown has no open field and no button.
                inner = answer.text.partition(form)[2].partition("</form>")[0]
                if not re.search(r'<fieldset class="rights" disabled>', inner):
                    needs = needed(html.unescape(action) or path)
                    if needs is not None and needs not in held:
                        refused.append((action, path))
                    forms[action] += 1
            links = {html.unescape(href) for href in re.findall(r' href="(/[^"#]*)', answer.text)}
            new = {link for link in links if not link.startswith("/static/") and _kind(link) not in seen}
            seen |= {_kind(link) for link in new}
            to_see += [(link, path) for link in sorted(new)]
    assert refused == []
    assert len(seen) > 40
    assert (len(forms) > 10) == (role == "operator"), forms
    if role == "viewer":
        assert set(forms) <= {"/theme", "/logout", "/runs/lists"}


def _kind(link: str) -> str:
    """Return what pages of one kind have in common: their path without ids, and the names in the query."""
    path, _, query = link.partition("?")
    return re.sub(r"(?<=/)[a-z]+_[0-9A-Za-z]{10,}|(?<=/)\d+", "*", path) + re.sub(r"=[^&]*", "", query)


async def _fill(console: Console, worker: ManualWorker) -> None:
    """Make one of each thing that has a page."""
    http, thread = console.api.http, await console.api.thread()
    await console.api.run(thread, "ended")
    await worker.play(thread)
    await console.api.run(thread, "queued")
    for path, body in (
        ("/v1/notes", {"agent_id": "nova", "title": "Plan", "content": "All of it."}),
        ("/v1/tasks", {"owner_agent_id": "nova", "title": "Ship it", "steps": [{"title": "Build"}]}),
        ("/v1/triggers", {"agent_id": "nova", "prompt": "Look", "kind": "every", "schedule": "3600"}),
        ("/v1/memories", {"content": "Release day is Thursday."}),
    ):
        answer = await http.post(path, json=body)
        assert answer.status_code in {200, 201}, answer.text
