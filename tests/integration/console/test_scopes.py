"""Keys with few scopes in the console: every page that they may use is there, without what they may not see."""

from __future__ import annotations

from typing import get_args

import httpx2

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.scopes import Scope
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import make_tenant
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.waiting import until

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
