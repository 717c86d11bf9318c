"""No page of the console, in any state, hinders people who use other senses or devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from nova_workers.console.pages import PAGES
from nova_workers.contracts.http.tenants import TenantCreate
from tests.browser.harness import UNFOLD, Site, new_context, page_of, sign_in_with
from tests.browser.long_data import fill_with_long_data
from tests.browser.things import states, things, trees
from tests.requirements import proves

_MENU = tuple(entry.path for module in PAGES for entry in module.nav)
_FORMS = (
    *("/agents/~new", "/notes/new", "/tasks/new", "/tasks/list", "/triggers/new", "/webhooks/new", "/nowhere"),
    *("/datasets/~new", "/evaluations/~new", "/agents/nova/rollouts/~new"),
    *("/orchestrations/new", "/orchestrations/configuration", "/orchestrations/models", "/runs/cancel?all=yes"),
    *("/search?q=parcel", "/runs?status=canceled", "/usage?by=agent", "/?by=model", "/audit?until=2001-01-01T00:00"),
)
_BUT_CONTRAST: dict[str, Any] = {"rules": {"color-contrast": {"enabled": False}}}
"""It takes half of the time, and pages have their colours in common."""
_EXAMPLES = ("/", "/runs", "/tasks", "/usage", "/notes")
"""Pages with the parts and colours of all others."""
_REFUSED = ("/notes/new", "/triggers/new", "/webhooks/new", "/keys")
"""Pages whose forms are refused when they are sent as they are, without the checks of the browser."""
_SEND = "const form = document.querySelector('main form.form'); form.noValidate = true; form.submit()"


async def _faults(page: Page, **rules: object) -> list[str]:
    found = await Axe().run(page, options={"resultTypes": ["violations"], **rules})
    return [
        f"{page.url} at {page.viewport_size}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
        for one in found.response["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


async def _walk(
    page: Page, site: str, paths: Sequence[str], widths: Sequence[int] = (1280,), **rules: object
) -> list[str]:
    """Return the faults of pages at some widths, with all their folds open."""
    faults: list[str] = []
    for path in paths:
        await page.goto(f"{site}{path}")
        await page.evaluate(UNFOLD)
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 800})
            faults += await _faults(page, **rules)
    return faults


@proves("console.accessible")
async def test_pages_have_no_accessibility_faults(page: Page, nova: Site) -> None:
    faults = await _walk(page, nova.url, [*_MENU, "/nowhere", *await things(nova)], **_BUT_CONTRAST)
    faults += await _walk(page, nova.url, [*await trees(nova), (await states(nova))[1]], (1280, 360), **_BUT_CONTRAST)
    assert not faults, "\n".join(faults)


@proves("console.accessible")
@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_pages_in_all_their_states_have_no_accessibility_faults(
    theme: str, page: Page, nova: Site, chromium: Browser
) -> None:
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    paths = [*_MENU, *_FORMS, *await things(nova), *await trees(nova), *await states(nova)]
    faults = await _walk(page, nova.url, paths, (1280, 360))
    for path in _REFUSED:
        await page.goto(f"{nova.url}{path}")
        async with page.expect_navigation():
            await page.evaluate(_SEND)
        faults += await _faults(page)
    await page.goto(f"{nova.url}/keys")
    for dialog in await page.locator("dialog").all():
        await dialog.evaluate("(dialog) => dialog.showModal()")
        faults += await _faults(page)
        await dialog.evaluate("(dialog) => dialog.close()")
    await page.evaluate("document.querySelectorAll('.banner[hidden]').forEach((part) => { part.hidden = false; })")
    faults += await _faults(page)
    if theme == "light":
        long = await fill_with_long_data(nova.fleet)
        empty = await nova.fleet.tenants.create(TenantCreate(name="Empty", ceilings=None))
        for key, pages in ((long.key, [*_MENU, *long.pages]), (empty.key.key, [*_MENU])):
            context = await new_context(chromium, base_url=nova.url)
            async with page_of(context) as other:
                await sign_in_with(other, key)
                faults += await _walk(other, nova.url, pages, (1280, 360))
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


async def test_pages_have_contrast_in_light_and_dark_colours(page: Page, nova: Site) -> None:
    faults: list[str] = []
    for path in _EXAMPLES:
        await page.goto(f"{nova.url}{path}")
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            faults += await _faults(page, runOnly=["color-contrast"])
    assert not faults, "\n".join(faults)
