"""`make demo`: start a fleet on this machine, send messages and tasks, show the ledger, and stop it.

The servers, the processes, HTTP and the `anthropic` engine are real. Without an API key the model is a stand-in on
loopback, and the demo prints that. Data goes to a temporary home that is deleted.
"""

import asyncio
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.base.program import EXIT_INTERRUPTED, exit_on_failed_output, finish_loading
from nova_workers.cli.demo.order import show_order
from nova_workers.cli.demo.tables import flower_table, flower_tasks, ledger_table, messages_table, process_table
from nova_workers.cli.demo.tree import show_tree
from nova_workers.cli.demo.watch import Watched, ms_since, watch_run
from nova_workers.cli.demo.work import create_trigger, show_task, show_trigger
from nova_workers.cli.terminal.output import printable
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import RunCreate, RunView, ThreadCreate, ThreadView
from nova_workers.devstack.home import StackState, flower_password, lock_home
from nova_workers.devstack.stack import Stack, StackOptions

AGENT = "nova"
FACT = "our release day is Thursday"
QUESTION = "When is our release day?"
ANSWER = "thursday"

_KEPT_LINES = 60
_EFFECTS_S = 15.0
_POLL_S = 0.1


class _QuietLines:
    """Buffers the processes' output, and prints the last lines after a failure."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    def lines(self, name: str, texts: Sequence[str]) -> None:
        self._kept.extend(f"{name:<8} │ {text}" for text in texts)

    def say(self, text: str, *, alarm: bool = False) -> None:
        self._kept.append(f"{'nova':<8} │ {text}")
        self._console.print(f"  {printable(text)}", style="red" if alarm else "dim", markup=False)

    def show_all(self) -> None:
        for line in self._kept:
            self._console.print(printable(line), style="dim", markup=False)


class _Demo:
    def __init__(self, console: Console, client: NovaClient) -> None:
        self._console = console
        self._client = client

    async def talk(self) -> list[Watched]:
        """Send the messages; return each run and its timing."""
        first = await self._client.threads.create(ThreadCreate(agent_id=AGENT))
        answered = [
            await self._send(first, "What happens to a message that I send?", "One message"),
            await self._send(first, f"Remember that {FACT}.", "A tool call: the agent saves to memory"),
        ]
        # The second conversation shares only the memory with the first.
        second = await self._client.threads.create(ThreadCreate(agent_id=AGENT))
        answered.append(await self._send(second, QUESTION, "Another conversation recalls it"))
        if ANSWER not in (answered[-1].run.text or "").lower():
            raise Unavailable(f"The second conversation did not recall the fact; it said {answered[-1].run.text!r}.")
        return answered

    async def titled(self, thread_id: str) -> ThreadView:
        """Return a thread when the effects have titled it, or without a title after `_EFFECTS_S`."""
        deadline_s = time.monotonic() + _EFFECTS_S
        while True:
            thread = await self._client.threads.get(thread_id)
            if thread.title or time.monotonic() > deadline_s:
                return thread
            await asyncio.sleep(_POLL_S)

    async def _send(self, thread: ThreadView, message: str, heading: str) -> Watched:
        console = self._console
        console.print()
        console.print(Rule(heading, align="left", style="cyan"))
        console.print(f"[bold]you[/]  {message}")
        began_s = time.monotonic()
        run = await self._client.runs.create(RunCreate(message=message), thread_id=thread.id)
        accepted_ms = ms_since(began_s)
        watched = await watch_run(console, self._client, run.id, began_s=began_s)
        console.print(f"     accepted in {accepted_ms:.0f} ms · {watched.times}", style="dim")
        return watched


async def _show_ledger(console: Console, demo: _Demo, client: NovaClient, answered: list[Watched]) -> None:
    console.print()
    console.print(Rule("The ledger in Postgres", align="left", style="cyan"))
    threads = {thread_id: await demo.titled(thread_id) for thread_id in {answered[0].run.thread_id}}
    threads |= {
        item.run.thread_id: await client.threads.get(item.run.thread_id)
        for item in answered
        if item.run.thread_id not in threads
    }
    turns = {thread_id: (await client.threads.turns(thread_id)).items for thread_id in threads}
    console.print(ledger_table([item.run for item in answered], threads, turns))
    last = answered[-1].run.thread_id
    console.print(messages_table(last, (await client.threads.messages(last)).items))


async def _show_flower(console: Console, state: StackState, password: str, runs: list[RunView]) -> None:
    console.print()
    console.print(Rule(f"What Flower saw ({state.flower_url})", align="left", style="cyan"))
    wanted = {run.id for run in runs}
    deadline_s = time.monotonic() + _EFFECTS_S
    while True:
        tasks = await flower_tasks(state.flower_url, password)
        if all(any(run_id in task.ids and task.runtime_s is not None for task in tasks) for run_id in wanted):
            break
        if time.monotonic() > deadline_s:
            raise Unavailable(f"Flower does not show the tasks of {sorted(wanted)} at {state.flower_url}.")
        await asyncio.sleep(_POLL_S)
    console.print(flower_table(tasks))


@asynccontextmanager
async def _running_stack(console: Console, settings: Settings, lines: _QuietLines) -> AsyncGenerator[StackState]:
    stack = Stack(settings, lines, StackOptions(port=0))
    began_s = time.monotonic()
    try:
        state = await stack.start()
        console.print(process_table(stack.pids, state))
        console.print(f"  up after {time.monotonic() - began_s:.1f} s", style="dim")
        yield state
    finally:
        console.print()
        began_s, count = time.monotonic(), len(stack.pids)
        await stack.stop()
        console.print(f"  stopped {count} processes in {time.monotonic() - began_s:.1f} s; none is left", style="dim")


async def _run(console: Console, settings: Settings, lines: _QuietLines) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
    console.print(Rule("A fleet on this machine", align="left", style="cyan"))
    async with _running_stack(console, settings, lines) as state:
        if state.model == "local":
            console.print(
                "  No ANTHROPIC_API_KEY: answers come from a local stand-in for a model on loopback, "
                "through the real anthropic engine.",
                style="yellow",
            )
        key = (settings.home / "api_key").read_text(encoding="utf-8").strip()
        async with NovaClient(state.api_url, key) as client:
            demo = _Demo(console, client)
            answered = await demo.talk()
            # It comes due while other things are shown.
            trigger_id = await create_trigger(client, AGENT)
            worked = [await show_task(console, client, AGENT)]
            await show_tree(console, client, AGENT)
            await show_order(console, client)
            worked.append(await show_trigger(console, client, trigger_id))
            await _show_ledger(console, demo, client, answered)
            await _show_flower(console, state, flower_password(settings), [item.run for item in (*answered, *worked)])


def main() -> None:
    """Run the demo. Exits with 0 if all of it worked; failures as `nova` does."""
    with exit_on_failed_output("demo"):
        finish_loading()
        code = _main()
    sys.exit(code)


def _settings(home: Path) -> Settings:
    settings = load_settings()
    # It ends before a person could sign in.
    console = settings.console.model_copy(update={"enabled": False})
    return settings.model_copy(update={"home": home, "console": console})


def _main() -> int:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 120)
    began_s = time.monotonic()
    lines = _QuietLines(console)
    try:
        with tempfile.TemporaryDirectory(prefix="nova-demo-", ignore_cleanup_errors=True) as home:
            settings = _settings(Path(home))
            with lock_home(settings.home):
                asyncio.run(_run(console, settings, lines))
    except NovaError as error:
        lines.show_all()
        console.print(f"demo: {printable(error.message)}", style="bold red", markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("demo: interrupted", style="yellow")
        return EXIT_INTERRUPTED
    console.print(f"  the demo took {time.monotonic() - began_s:.1f} s. Next: make up, then nova chat", style="bold")
    return 0
