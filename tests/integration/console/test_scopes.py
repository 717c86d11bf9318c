"""Keys with few scopes in the console: every page that they may use is there, without what they may not see."""

from __future__ import annotations

import httpx2

from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import make_tenant
from tests.integration.console.conftest import Console
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
