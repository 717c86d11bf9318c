"""An open page shows what its address would show now: its title, its head with the buttons, and all that is below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from playwright.async_api import Page, expect

from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.fleet import FleetPause
from nova_workers.contracts.http.notes import NoteCreate
from nova_workers.contracts.http.orchestrations import AgentKill, OrchestrationCreate
from nova_workers.contracts.http.tasks import TaskCreate, TaskEnd
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerPatch
from nova_workers.contracts.http.wire import StatelessRunCreate, ThreadFork, ThreadPatch
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.waiting import stays, until

# What a page shows, without what only its scripts or the clock change.
_SHOWN = r"""
(page) => {
  const main = page.getElementById("main").cloneNode(true);
  for (const one of main.querySelectorAll("[data-keep], #flash, [name=key], svg, .to-end")) one.remove();
  for (const time of main.querySelectorAll("time")) time.replaceWith(time.dateTime);
  for (const one of [main, ...main.querySelectorAll("*")]) {
    for (const { name } of [...one.attributes]) {
      if (/^data-|^open$|^hidden$|^class$|^style$/.test(name)) one.removeAttribute(name);
    }
  }
  const html = main.innerHTML.replace(/\s+/g, " ").replace(/> | </g, (found) => found.trim());
  return page.title + html.replace(/(\d+(\.\d+)? (ms|s|min|h|d)\b ?)+/g, "");
}
"""
_OPEN = f"({_SHOWN})(document)"
_FRESH = f"""
fetch(location.href, {{headers: {{"Nova-Fragment": "test"}}}}).then((answer) => answer.text())
  .then((text) => ({_SHOWN})(new DOMParser().parseFromString(text, "text/html")))
"""

Change = Callable[[], Awaitable[object]]


async def _things(client: NovaClient, worker: ManualWorker) -> dict[str, tuple[str, Change]]:
    """Return pages by their templates, with a change that the head of each shows."""
    run = await client.runs.create(StatelessRunCreate(message="Count the files", agent_id="nova"))
    tree = await client.orchestrations.start(OrchestrationCreate(task="Compare", agent_id="nova"))
    trigger = await client.triggers.create(
        TriggerCreate(agent_id="nova", kind="cron", schedule="0 9 * * *", prompt="Hello", title="Mornings")
    )
    task = await client.tasks.create(TaskCreate(title="Report", owner_agent_id="nova", status="draft"))
    said = await client.runs.create(StatelessRunCreate(message="Hello", agent_id="nova"))
    await worker.play(said.thread_id)
    turn = (await client.threads.turns(said.thread_id)).items[0]

    async def fork_and_name() -> None:
        await client.threads.fork(said.thread_id, ThreadFork(turn_id=turn.id))
        await client.threads.patch(said.thread_id, ThreadPatch(title="Named since"))

    send = partial(client.runs.create, StatelessRunCreate(message="Another message", agent_id="nova"))
    pause = partial(client.fleet.pause, FleetPause(scope="agent", agent_id="nova", reason="a test"))
    resume = partial(client.fleet.resume, FleetPause(scope="agent", agent_id="nova"))
    start = partial(client.orchestrations.start, OrchestrationCreate(task="Again", agent_id="nova"))
    note = partial(client.notes.create, NoteCreate(agent_id="nova", title="New", content=""))
    return {
        "runs/show.html": (f"/runs/{run.id}", partial(client.runs.cancel, run.id)),
        "orchestrations/show.html": (
            f"/orchestrations/{tree.id}",
            partial(client.orchestrations.kill, tree.id, AgentKill()),
        ),
        "triggers/show.html": (
            f"/triggers/{trigger.id}",
            partial(client.triggers.patch, trigger.id, TriggerPatch(enabled=False)),
        ),
        "triggers/list.html": ("/triggers", partial(client.triggers.delete, trigger.id)),
        "tasks/show.html": (f"/tasks/{task.id}", partial(client.tasks.activate, task.id)),
        "tasks/board.html": ("/tasks", partial(client.tasks.cancel, task.id, TaskEnd())),
        "chat/thread.html": (f"/chat/{said.thread_id}", fork_and_name),
        "chat/index.html": ("/chat", send),
        "runs/list.html": ("/runs", send),
        "notes/list.html": ("/notes", note),
        "home/show.html": ("/", pause),
        "tenant/show.html": ("/tenant", resume),
        "fleet/show.html": ("/fleet", pause),
        "orchestrations/list.html": ("/orchestrations", start),
    }


@proves("console.live")
async def test_more_open_pages_than_a_browser_has_connections_are_live(console: Console, page: Page) -> None:
    pages = [page, *[await page.context.new_page() for _ in range(6)]]
    for each in pages:
        await each.goto("/tasks")
    async with NovaClient(console.api.url, console.api.tenant.key) as client:
        await client.tasks.create(TaskCreate(title="Seen by all", owner_agent_id="nova", status="draft"))
    for each in pages:
        await expect(each.get_by_role("link", name="Seen by all")).to_be_visible()


@proves("console.live")
async def test_an_open_page_shows_what_its_address_shows(console: Console, page: Page, worker: ManualWorker) -> None:
    client = NovaClient(console.api.url, console.api.tenant.key)
    for template, (path, change) in (await _things(client, worker)).items():
        await page.goto(path)
        before = await page.evaluate(_FRESH)
        assert await page.evaluate(_OPEN) == before, template
        await change()

        async def is_current(before: str = before) -> bool:
            # Its next renewal is due then.
            await page.evaluate("document.querySelector('main[data-refresh]') && dispatchEvent(new Event('online'))")
            fresh = await page.evaluate(_FRESH)
            return fresh != before and await page.evaluate(_OPEN) == fresh

        await until(is_current, f"{template} to show what changed")
    await client.aclose()


async def test_what_a_person_types_and_selects_stays_while_a_page_changes(console: Console, page: Page) -> None:
    client = NovaClient(console.api.url, console.api.tenant.key)
    task = await client.tasks.create(TaskCreate(title="Report", owner_agent_id="nova", status="draft"))
    await page.goto(f"/tasks/{task.id}")
    await page.get_by_label("Description").fill("Half a sentence")
    await page.get_by_label("New step").click()
    await client.tasks.activate(task.id)
    await expect(page.get_by_role("button", name="Work on it now")).to_be_visible()
    await expect(page.get_by_label("Description")).to_have_value("Half a sentence")
    await expect(page.get_by_label("New step")).to_be_focused()
    await client.aclose()


@proves("console.changes")
async def test_a_page_asks_for_nothing_while_nothing_changes_and_shows_a_run_of_elsewhere(
    console: Console, page: Page, worker: ManualWorker
) -> None:
    client = NovaClient(console.api.url, console.api.tenant.key)
    for path in ("/", "/runs"):
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        # Its stream begins with one renewal, for what changed since the page was made.
        async with page.expect_request(lambda request: request.headers.get("nova-fragment") == "refresh"):
            await page.goto(path)
        await until(lambda asked=asked: len([url for url in asked if "/changes" in url]) == 1, "its stream")
        seen = len(asked)
        await stays(lambda asked=asked, seen=seen: len(asked) == seen, for_s=4.0)
        run = await client.runs.create(StatelessRunCreate(message=f"From elsewhere {path}", agent_id="nova"))
        shown = page.locator("#main").get_by_text(f"From elsewhere {path}").first
        await expect(shown).to_be_visible(timeout=30_000)
        turn = await worker.claim(run.thread_id)
        await turn.finish()
        row = page.locator("#main").locator("tr, li", has_text=f"From elsewhere {path}").last
        await expect(row).to_contain_text("succeeded", timeout=30_000)
    await client.aclose()


_NOTIFICATIONS = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (Notification.permission = "granted"); }
  constructor(title, { body }) { window.shown.push([title, body]); }
};
"""


async def test_a_question_is_counted_in_the_title_and_notified_to_who_asked_for_it(
    console: Console, page: Page, worker: ManualWorker
) -> None:
    client = NovaClient(console.api.url, console.api.tenant.key)
    await page.add_init_script(_NOTIFICATIONS)
    await page.goto("/tasks")
    await expect(page).to_have_title("Tasks · Nova")
    notify = page.get_by_role("button", name="Notify me when something needs a person")
    await notify.click()
    await expect(notify).to_have_attribute("aria-pressed", "true")
    await page.wait_for_function("localStorage.getItem('nova:notify') === 'yes'")
    for count, question in ((1, "Which one?"), (2, "And this?")):
        run = await client.runs.create(StatelessRunCreate(message="Choose", agent_id="nova"))
        turn = await worker.claim(run.thread_id)
        await turn.suspend("", NewWait("call_1", AskUser(question=question)))
        await expect(page).to_have_title(f"({count}) Tasks · Nova", timeout=30_000)
    await page.wait_for_function("window.shown.length")
    assert ["A question: nova", "And this?"] in await page.evaluate("window.shown")
    await client.aclose()
