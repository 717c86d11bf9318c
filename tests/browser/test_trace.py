"""A run's page as a trace: by keyboard, and with what the model was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from tests.browser.harness import UNFOLD, Site
from tests.browser.long_data import ARABIC
from tests.requirements import proves

_STEPS = 1_000
_WIDTHS = (1280, 360)
_PLAYED_S = 240


async def _played(nova: Site, agent_id: str, script: Sequence[Mapping[str, Any]], message: str) -> str:
    """Run a script to its end, and return the address of its run."""
    agent = AgentCreate(
        id=agent_id, name=agent_id, engine="scripted", engine_config={"script": script}, max_turns=_STEPS
    )
    await nova.fleet.agents.create(agent)
    ended = await nova.fleet.runs.wait(StatelessRunCreate(message=message, agent_id=agent_id), timeout_s=_PLAYED_S)
    assert ended.status == "succeeded", ended.error
    return f"{nova.url}/runs/{ended.id}"


async def _faults(page: Page) -> list[str]:
    await page.evaluate(UNFOLD)
    found = await Axe().run(page, options={"resultTypes": ["violations"]})
    faults = [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found.response["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return faults + ([f"{page.url} is {width[0]} px wide"] if width[0] > width[1] else [])


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


@proves("console.trace")
async def test_a_trace_is_read_from_right_to_left_and_without_faults(page: Page, nova: Site) -> None:
    tool = {"name": "memory_list", "input": {"q": ARABIC}, "result": ARABIC}
    address = await _played(nova, "scribe", [{"say": ARABIC, "tool": tool}, {"say": ARABIC}], ARABIC)
    faults: list[str] = []
    for width in _WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        for at in ("", "?at=attempt-1", "?at=step-0", "?at=call-0-0"):
            await page.goto(f"{address}{at}")
            faults += await _faults(page)
        await page.goto(address)
        directions = await page.locator("#overview .prose p").evaluate_all(
            "(parts) => parts.map((part) => getComputedStyle(part).direction)"
        )
        assert directions == ["rtl", "rtl"]
    assert faults == []


@proves("console.trace")
@pytest.mark.long  # What it shows of a long run is a page of its steps, which the test of a short one shows as well.
async def test_a_run_of_a_thousand_steps_is_read_in_pages(page: Page, nova: Site) -> None:
    script = [{"tool": {"name": "memory_list", "input": {"n": n}}} for n in range(_STEPS - 1)]
    address = await _played(nova, "marathon", [*script, {"say": "Done."}], "Run")
    await page.goto(address)
    rows = page.get_by_role("navigation", name="What the run did").get_by_role("link")
    first = await rows.count()
    assert 100 < first < _STEPS
    assert await _faults(page) == []
    await page.get_by_role("link", name="Later steps").click()
    await expect(page.get_by_role("link", name="First steps")).to_be_visible()
    assert await _faults(page) == []
