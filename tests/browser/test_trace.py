"""A run's page as a trace: by keyboard, and with what the model was asked."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.harness import Site
from tests.requirements import proves


@proves("console.trace")
async def test_a_person_reads_by_keyboard_what_a_model_was_asked(page: Page, nova: Site) -> None:
    (run,) = (await nova.fleet.runs.list(agent_id="analyst", limit=1)).items
    address = f"{nova.url}/runs/{run.id}"
    await page.goto(address)
    tree = page.get_by_role("navigation", name="What the run did")
    first = tree.get_by_role("link", name=re.compile("^attempt:"))
    await first.focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    selected = page.get_by_role("region", name="Selected")
    await expect(selected.get_by_role("heading", name="Step 1: model call")).to_be_visible()
    await expect(page).to_have_url(f"{address}?at=step-0")
    await selected.get_by_text("Identity").click()
    await expect(selected.locator("#section-1 pre")).to_be_visible()
    await expect(tree.locator("[aria-current]")).to_contain_text("1.")
    # From what is selected to its row, and to the whole run; the browser's own way back leads to the selection.
    await page.keyboard.press("Escape")
    await expect(tree.locator("[aria-current]")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(address)
    await expect(selected).to_have_count(0)
    await page.go_back()
    await expect(selected).to_be_visible()
