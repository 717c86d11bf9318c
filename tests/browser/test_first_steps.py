"""A person's first minutes: in by the login link, around by the keyboard, and everything readable."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Page, Route, expect

from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.browser.harness import Site, new_context, signed_in
from tests.support.waiting import until


async def test_a_login_link_opens_home_and_home_leads_to_the_runs(page: Page, nova: Site) -> None:
    await expect(page).to_have_url(f"{nova.url}/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    await expect(page.get_by_text("Publish version 2.4?").first).to_be_visible()
    await page.locator("svg.plot").first.locator("[tabindex='0']").focus()
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".plot-values")).to_have_text(re.compile(r"^\d\d:00(nothing|\d+ succeeded)"))
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Runs").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    await expect(page.get_by_role("row", name=re.compile("How did we do this week"))).to_be_visible()


async def test_a_login_link_signs_in_only_once(nova: Site, chromium: Browser) -> None:
    link = nova.login()
    first, second = await new_context(chromium), await new_context(chromium)
    page = await first.new_page()
    await page.goto(link)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Home")
    page = await second.new_page()
    await page.goto(link)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await expect(page.get_by_role("alert")).to_contain_text("was used already")
    await first.close()
    await second.close()


async def test_filters_send_themselves_and_have_an_address(page: Page, nova: Site) -> None:
    await page.goto(f"{nova.url}/runs")
    await page.get_by_role("checkbox", name="failed").click()
    await expect(page).to_have_url(f"{nova.url}/runs?status=failed")
    await expect(page.get_by_role("row", name=re.compile("Import prices"))).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("Where is my parcel"))).to_have_count(0)


async def test_a_form_whose_sending_was_stopped_can_be_sent_again(page: Page, nova: Site) -> None:
    sent: list[str] = []

    async def stop(route: Route) -> None:
        sent.append(route.request.post_data or "")
        await route.abort("aborted")

    await page.goto(f"{nova.url}/notes/new")
    await page.route("**/notes/new", stop)
    title, save = page.get_by_label("Title"), page.get_by_role("button", name="Save")
    await title.fill("Parcels")
    await save.dblclick()
    await until(lambda: len(sent) == 1)
    await page.keyboard.press("Escape")
    await save.dblclick()
    await until(lambda: len(sent) == 2)
    await title.fill("Letters")
    await save.dblclick()
    await until(lambda: len(sent) == 3)
    assert ["Letters" in form for form in sent] == [False, False, True]


async def test_selected_runs_are_canceled_after_a_question(page: Page, nova: Site) -> None:
    await page.goto(f"{nova.url}/runs?status=running&status=waiting")
    cancel = page.get_by_role("button", name="Cancel the selected")
    await expect(cancel).to_be_hidden()
    await page.get_by_label("Select all runs of this page").check()
    await page.get_by_label(re.compile("^Select (?!all runs)")).first.uncheck()
    await cancel.click()
    await expect(page.get_by_role("heading", name=re.compile(r"Cancel \d+ runs?\?"))).to_be_visible()
    await page.get_by_role("link", name="Keep").click()
    await expect(page).to_have_url(f"{nova.url}/runs?status=running&status=waiting")


async def test_a_list_shows_a_new_run_without_a_reload(page: Page, nova: Site) -> None:
    await page.goto(f"{nova.url}/runs?agent=nova")
    await page.evaluate("window.untouched = true")
    run = await nova.fleet.runs.create(StatelessRunCreate(message="A message of a moment ago", agent_id="nova"))
    await expect(page.get_by_role("row", name=re.compile("A message of a moment ago"))).to_be_visible(timeout=60_000)
    assert await page.evaluate("window.untouched") is True
    await nova.fleet.threads.delete(run.thread_id)


async def test_shortcuts_go_to_pages_and_are_listed(page: Page, nova: Site) -> None:
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await expect(page).to_have_url(f"{nova.url}/runs")
    await page.wait_for_load_state()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("/")
    await expect(page.locator("[data-search]").first).to_be_focused()
    await page.keyboard.press("Escape")
    await page.locator("h1").click()
    await page.keyboard.press("j")
    rows = page.locator("[data-rows] tbody tr")
    await expect(rows.first.locator("td.main a")).to_be_focused()
    await page.keyboard.press("x")
    await page.keyboard.press("ArrowDown")
    await expect(rows.nth(1).locator("td.main a")).to_be_focused()
    await page.keyboard.press("x")
    await expect(page.get_by_text("2 selected")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_text("2 selected")).to_be_hidden()


async def test_the_palette_finds_pages_and_ids(page: Page, nova: Site) -> None:
    await page.keyboard.press("Control+k")
    # Without the number of runs that are under way.
    await expect(page.get_by_role("listbox").get_by_role("option").nth(2)).to_have_text(re.compile("^Runs(g r)?$"))
    await page.keyboard.type("runs")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{nova.url}/runs")
    await page.wait_for_load_state()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("run_01AAAAAAAAAAAAAAAAAAAAAAAA")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{nova.url}/runs/run_01AAAAAAAAAAAAAAAAAAAAAAAA")


async def test_the_theme_is_kept(page: Page, nova: Site) -> None:
    await page.get_by_role("button", name="Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    async with page.expect_response("**/runs"):
        await page.goto(f"{nova.url}/runs")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_pages_work_without_scripts(nova: Site, chromium: Browser) -> None:
    context = await new_context(chromium, java_script_enabled=False)
    page = await signed_in(context, nova)
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Runs").click()
    await page.get_by_role("checkbox", name="failed").check()
    await page.get_by_role("button", name="Filter").click()
    await expect(page.get_by_role("row", name=re.compile("Import prices"))).to_be_visible()
    await context.close()
