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
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.waiting import until

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
  return page.title + html.replace(/\d+(\.\d+)? (ms|s|min|h)\b/g, "");
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
