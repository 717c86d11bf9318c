"""``python -m tests.browser.pictures [WORD…]``: pictures of every page of the console in every state.

A fleet with a morning's work is started. Each page of the navigation, and the first thing that it lists, is taken at
three widths in both themes for the documents; then `nova chat` in a terminal. What only a developer looks at goes to
`.cache/pictures`, which is not kept, and is taken on tablets, too: forms, dialogs, runs and chats in each state,
the sign-in, a fleet that is away, what a tenant without anything sees, what a key that only reads sees, and a refused
form. Words choose among them all by their names.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path

from playwright.async_api import Page

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.tenants import TenantCreate
from nova_workers.contracts.http.wire import ThreadPatch
from nova_workers.devstack.commands import WORKER_APP
from nova_workers.ledger.database import PostgresDatabase
from tests.browser import terminal_picture
from tests.browser.harness import Site, browser, console_at, sign_in_with, signed_in, site
from tests.browser.past import fill_past, furnish
from tests.browser.seeding import seed
from tests.support.servers.databases import own_postgres, own_valkey

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = _ROOT / "docs" / "pictures"
STATES = _ROOT / ".cache" / "pictures"
WIDTHS = {"phone": (390, 844), "laptop": (1280, 800), "desktop": (1680, 1000)}
_WIDTHS_OF_STATES = {**WIDTHS, "tablet": (820, 1180)}
THEMES = ("light", "dark")
_QUALITY = 70
_NOWHERE = "http://127.0.0.1:1"
_STREAMED_MS = 600
_PAST_ENDS = timedelta(minutes=20)
"""How long before the pictures."""
_FORMS = {
    "new-agent": "/agents/~new",
    "new-trigger": "/triggers/new",
    "new-task": "/tasks/new",
    "new-note": "/notes/new",
    "new-webhook": "/webhooks/new",
    "new-orchestration": "/orchestrations/new",
    "new-dataset": "/datasets/~new",
    "new-evaluation": "/evaluations/~new?agent=support&dataset=questions",
    "new-rollout": "/agents/analyst/rollouts/~new",
    "orchestration-models": "/orchestrations/models",
    "tasks-list": "/tasks/list",
    "runs-by-cost": "/runs?sort=cost&period=day",
    "runs-filtered-away": "/runs?text=in+no+run",
    "cancel-all": "/runs/cancel?all=yes",
    "search-found": "/search?q=parcel",
    "usage-by-agent": "/usage?by=agent",
    "home-by-model": "/?by=model",
    "nowhere": "/nowhere",
    "refused-note": "/notes/new",
    "refused-trigger": "/triggers/new",
}
_DIALOGS = {
    "dialog-pause": ("/fleet", "Pause"),
    "dialog-revoke": ("/keys", "Revoke"),
    "dialog-rotate": ("/keys", "Rotate"),
    "dialog-delete": ("/secrets", "Delete"),
}
"""The page of each dialog, and the button that opens it."""
_SINGLE_SIGN_ON = {
    "NOVA_OIDC__ISSUER": "https://accounts.example.com",
    "NOVA_OIDC__NAME": "Example",
    "NOVA_OIDC__CLIENT_ID": "nova",
    "NOVA_OIDC__CLIENT_SECRET": "not-a-real-secret",
}
_SHOW_AWAY = "document.getElementById('away').hidden = false"
_SEND = "const form = document.querySelector('main form.form'); form.noValidate = true; form.submit()"
_FIRST_ROW = "main [data-rows] tbody td.main a, main .rows li > a"


async def main(words: list[str]) -> None:
    """Take the pictures."""
    for folder in (FOLDER, STATES):
        folder.mkdir(parents=True, exist_ok=True)
    async with seeded() as nova, browser() as chromium:
        tenant_id = (await nova.fleet.whoami()).tenant_id
        await fill_past(nova.database_url, tenant_id, datetime.now(UTC) - _PAST_ENDS)
        await furnish(nova.fleet)
        page = await signed_in(await chromium.new_context(), nova)
        await _take_all(page, nova.url, await _pages(page, nova), words, FOLDER)
        dialogs = [(name, path) for name, (path, _) in _DIALOGS.items()]
        states = [*await _states(nova), *dialogs, ("palette", "/"), ("away-banner", "/runs")]
        await _take_all(page, nova.url, states, words, STATES)
        # Its sessions are those of the other console of this home; at its API's address nothing answers.
        async with console_at(_NOWHERE, nova.api_key, nova.home, preloaded=True, **_SINGLE_SIGN_ON) as (url, _):
            await _take_all(page, url, [("away", "/runs")], words, STATES)
            stranger = await (await chromium.new_context()).new_page()
            await _take_all(stranger, url, [("sign-in", "/login")], words, STATES)
        empty = await nova.fleet.tenants.create(TenantCreate(name="Empty", ceilings=None))
        viewer = await nova.fleet.keys.create(KeyCreate(name="A viewer", role="viewer"))
        for kind, key in (("empty", empty.key.key), ("viewer", viewer.key)):
            other = await (await chromium.new_context(base_url=nova.url)).new_page()
            await sign_in_with(other, key)
            found = [(f"{kind}-{name}", path) for name, path in _menu()]
            if kind == "viewer":
                found += [(f"viewer-{name}", path) for name, path in await _states(nova) if name not in _FORMS]
            await _take_all(other, nova.url, found, words, STATES)
        if not words or "terminal" in words:
            await _take_terminal(page, nova)
    print(f"{sum(one.stat().st_size for one in FOLDER.iterdir()) / 1e6:.1f} MB in {FOLDER}")


async def _take_all(page: Page, url: str, found: Sequence[tuple[str, str]], words: Sequence[str], folder: Path) -> None:
    widths = WIDTHS if folder == FOLDER else _WIDTHS_OF_STATES
    for name, path in found:
        if words and not any(word in name for word in words):
            continue
        for theme in THEMES:
            await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            for width, (across, down) in widths.items():
                await page.set_viewport_size({"width": across, "height": down})
                await page.goto(f"{url}{path}")
                await _bring_about(page, name)
                # What is streamed shows its first lines by then.
                await page.wait_for_timeout(_STREAMED_MS)
                await _take(page, folder / f"{name}-{width}-{theme}.webp")
        print(name, path)


async def _bring_about(page: Page, name: str) -> None:
    """Do on a page what leads to the state of a name."""
    if name.startswith("refused"):
        async with page.expect_navigation():
            await page.evaluate(_SEND)
    elif name in _DIALOGS:
        await page.get_by_role("button", name=_DIALOGS[name][1], exact=True).first.click()
    elif name == "palette":
        await page.keyboard.press("Control+k")
    elif name == "away-banner":
        await page.evaluate(_SHOW_AWAY)


def _menu() -> list[tuple[str, str]]:
    entries = (entry for module in PAGES for entry in module.nav)
    return [(entry.title.lower().replace(" ", "-"), entry.path) for entry in entries]


async def _states(nova: Site) -> list[tuple[str, str]]:
    """Return names and addresses of what the pages of the navigation and their first things do not show."""
    found = list(_FORMS.items())
    for state, agent_id in (("failed", "importer"), ("waiting", "release"), ("running", "writer"), ("done", "analyst")):
        (run,) = (await nova.fleet.runs.list(agent_id=agent_id, limit=1)).items
        found += [(f"run-{state}", f"/runs/{run.id}"), (f"chat-{state}", f"/chat/{run.thread_id}")]
        if state in {"done", "waiting"}:
            steps = (await nova.fleet.runs.timeline(run.id)).steps
            found += [(f"trace-{state}", f"/runs/{run.id}?at=step-{step.index}") for step in steps[:1]]
            found += [
                (f"trace-tool-{state}", f"/runs/{run.id}?at=call-{step.index}-0") for step in steps if step.calls
            ][:1]
    return found


async def _take_terminal(page: Page, nova: Site) -> None:
    if why := terminal_picture.missing():
        print(f"The picture of the terminal stays as it is: {why}.")
        return
    await page.goto("about:blank")
    await page.set_content(await terminal_picture.terminal_page(nova))
    box = await page.locator("body").bounding_box()
    assert box is not None
    await page.set_viewport_size({"width": ceil(box["width"]), "height": ceil(box["height"])})
    await _take(page, FOLDER / "terminal.webp")
    print("terminal")


@asynccontextmanager
async def seeded(*, worker_app: str = WORKER_APP, preloaded: bool = True) -> AsyncGenerator[Site]:
    """A fleet with a morning's work, and its console, on servers of its own; see `site`."""
    with ExitStack() as servers:
        home = Path(servers.enter_context(tempfile.TemporaryDirectory(prefix="nova-pictures-")))
        postgres, valkey = await asyncio.to_thread(
            lambda: (servers.enter_context(own_postgres()), servers.enter_context(own_valkey()))
        )
        async with site(postgres, valkey, home, worker_app=worker_app, preloaded=preloaded) as nova:
            await seed(nova.fleet)
            await _archive_scripts(nova)
            await _replace_scripts(nova)
            yield nova


async def _archive_scripts(nova: Site) -> None:
    """Put conversations between agents out of the chat's list: their messages are scripts of the scripted engine."""
    for thread in (await nova.fleet.threads.list(origin="agent")).items:
        await nova.fleet.threads.patch(thread.id, ThreadPatch(archived=True))


async def _replace_scripts(nova: Site) -> None:
    """Let runs between agents have messages as people's agents do, and not scripts of the scripted engine."""
    database = PostgresDatabase(nova.database_url, pool_size=1)
    try:
        await database.execute(
            "UPDATE runs SET content = jsonb_build_array(jsonb_build_object('type', 'text', 'text', :message::text)) "
            "WHERE content::text LIKE '%script%'",
            message="Sum up the orders of your region, and ask before you leave anything out.",
        )
    finally:
        await database.close()


async def _pages(page: Page, nova: Site) -> list[tuple[str, str]]:
    """Return names and addresses: each page of the navigation, and that of the first thing that it lists."""
    found: list[tuple[str, str]] = []
    for name, path in _menu():
        found.append((name, path))
        await page.goto(f"{nova.url}{path}")
        first = page.locator(_FIRST_ROW).first
        if path != "/" and await first.count():
            address = await first.get_attribute("href") or ""
            answer = await page.goto(f"{nova.url}{address}") if address.startswith(f"{path}/") else None
            if answer is not None and answer.ok:
                found.append((f"{name}-one", address))
    return found


async def _take(page: Page, to: Path) -> None:
    # WebP is a quarter of the size of PNG; Playwright's own call does not offer it.
    session = await page.context.new_cdp_session(page)
    taken = await session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
    await session.detach()
    await asyncio.to_thread(to.write_bytes, base64.b64decode(taken["data"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
