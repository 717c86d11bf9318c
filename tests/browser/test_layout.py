"""Every page can be read and worked with at every width, whatever the names in it are."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from nova_workers.console.pages import PAGES
from tests.browser.harness import Site, new_context, page_of, sign_in_with
from tests.browser.long_data import fill_with_long_data
from tests.requirements import proves

_FAULTS = (Path(__file__).parent / "layout_faults.js").read_text()
_FORMS = (
    *("/agents/~new", "/notes/new", "/tasks/new", "/tasks/list", "/triggers/new", "/webhooks/new", "/nowhere"),
    *("/datasets/~new", "/evaluations/~new", "/agents/nova/rollouts/~new"),
    *("/orchestrations/new", "/orchestrations/configuration", "/orchestrations/models", "/runs/cancel?all=yes"),
)
_EXAMPLES = ("/audit", "/inbox", "/keys", "/webhooks/", "/orchestrations/orc_", "/runs/run_", "/chat/thr_")
"""Pages with the parts of all others."""


async def _walk(page: Page, site: str, paths: list[str], widths: tuple[int, ...]) -> list[str]:
    """Return the faults of some pages at some widths."""
    faults: list[str] = []
    for path in paths:
        await page.goto(f"{site}{path}")
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 800})
            found: list[str] = await page.evaluate(f"({_FAULTS})()")
            faults += [f"{path} at {width}: {fault}" for fault in found]
    return faults


@proves("console.layout")
@pytest.mark.parametrize(
    "widths", [pytest.param((320, 360, 768, 1000, 1280), marks=pytest.mark.long), pytest.param((320, 1000), id="few")]
)
async def test_nothing_is_cut_off_or_out_of_reach(widths: tuple[int, ...], nova: Site, chromium: Browser) -> None:
    long = await fill_with_long_data(nova.fleet)
    paths = [*(entry.path for module in PAGES for entry in module.nav), *_FORMS, *long.pages]
    if len(widths) < 5:
        paths = [path for path in paths if path.startswith(_EXAMPLES)]
    context = await new_context(chromium, base_url=nova.url)
    async with page_of(context) as page:
        await sign_in_with(page, long.key)
        faults = await _walk(page, nova.url, paths, widths)
    context = await new_context(chromium)
    async with page_of(context) as page:
        # Tenants, with their names, are an operator's.
        await page.goto(nova.login())
        faults += await _walk(page, nova.url, ["/fleet"], widths)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:60])
