"""The live changes of an open conversation: its runs, also those that others start, and the text as it comes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from time import monotonic

from nova_workers.base.errors import Gone, NotFound, NovaError
from nova_workers.base.ids import new_id
from nova_workers.base.stopping import stop_tasks
from nova_workers.client.client import NovaClient
from nova_workers.console.chat.around import Around, load_around
from nova_workers.console.chat.listing import Listed
from nova_workers.console.chat.live_run import LiveRun
from nova_workers.console.chat.tail import Renderer, Tail
from nova_workers.console.chat.transcript import Conversation, ShownTurn, load_conversation
from nova_workers.console.chat.tree import Switches
from nova_workers.console.live import DONE, Change
from nova_workers.contracts.http.wire import RunView

_WATCH_S = 1.5
"""How often the thread is looked at for runs that other clients started. Those of this page are followed at once."""
_THREADS_EVERY = 3
"""The list of threads, forks and files are renewed with every third look."""
_LEAST_PAUSE_S = 0.03
_PAUSE_FACTOR = 4.0
"""Rendering takes at most a fifth of the time: a long table is rendered less often than a short sentence."""
_QUIET_S = 0.02
_CATCH_UP_S = 0.5
"""A stream begins with what was sent before. It is shown at once, when it pauses or after this time."""


async def follow_thread(
    client: NovaClient, thread_id: str, *, after: int, render: Renderer, look: Callable[[], Awaitable[Listed]]
) -> AsyncGenerator[Change]:
    """Yield the changes of a conversation's page, until it is closed.

    Args:
        client: A client of the thread's tenant.
        thread_id: The conversation.
        after: The depth of the newest turn that the browser has whole.
        render: Makes the page's parts.
        look: Reads the list of conversations that is beside it.
    """
    feed = _Feed(client, thread_id, after, render, look)
    try:
        while True:
            for change in await feed.renewed():
                yield change
            await feed.pause()
    except (Gone, NotFound):
        yield Change("inner", "composer", render("deleted"))
        yield DONE
    finally:
        await feed.close()


class _Feed:
    def __init__(
        self, client: NovaClient, thread_id: str, after: int, render: Renderer, look: Callable[[], Awaitable[Listed]]
    ) -> None:
        self._client = client
        self._thread_id = thread_id
        self._after = after
        self._render = render
        self._look = look
        self._key = new_id("evt")
        self._wake = asyncio.Event()
        self._stale = True
        self._error: NovaError | None = None
        self._conversation: Conversation | None = None
        self._live: LiveRun | None = None
        self._tail: Tail | None = None
        self._events = 0
        self._rendered_at = 0.0
        self._pause_s = _LEAST_PAUSE_S
        self._sent: dict[str, str] = {}
        self._listed: Listed | None = None
        self._around: Around | None = None
        self._is_open = False
        self._follower: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(self._watch())

    async def renewed(self) -> list[Change]:
        """Return the changes since the last call."""
        self._wake.clear()
        changes: list[Change] = []
        loaded = None
        if self._around is None:
            # A turn shows what it parts from.
            self._around = await load_around(self._client, self._thread_id)
        while self._stale:
            self._stale = False
            loaded = await load_conversation(
                self._client, self._thread_id, after=self._after, seen=loaded or self._conversation
            )
        started = monotonic()
        if loaded is not None:
            self._conversation = loaded
            # In a thread: others want their pages while a long answer is rendered.
            changes += await asyncio.to_thread(self._ledger_changes, loaded, self._around.switches)
            self._follow(loaded.next_run)
        changes += self._tail_changes()
        if self._listed is not None:
            html = self._render("threads", self._listed, self._thread_id)
            changes += self._replaced("threads", html)
        changes += self._replaced("around", self._render("around", self._around))
        for (turn_id, next_id), switch in self._around.switches.items():
            html = self._render("switch", turn_id, next_id, switch)
            if self._is_new(f"switch-{turn_id}-{next_id}", html):
                changes.append(Change("replace", f"switch-{turn_id}-{next_id}", html))
        self._rendered_at = monotonic()
        self._pause_s = max(_LEAST_PAUSE_S, _PAUSE_FACTOR * (self._rendered_at - started))
        return changes

    async def pause(self) -> None:
        """Wait for news, and not less than screens need."""
        await self._wake.wait()
        if self._error is not None:
            raise self._error
        await asyncio.sleep(max(0.0, self._rendered_at + self._pause_s - monotonic()))
        until = monotonic() + _CATCH_UP_S
        while self._tail is not None and self._tail.fresh and monotonic() < until:
            before = self._events
            await asyncio.sleep(_QUIET_S)
            if before == self._events:
                break

    async def close(self) -> None:
        """Stop following."""
        await stop_tasks(self._tasks)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ledger_changes(self, loaded: Conversation, switches: Switches) -> list[Change]:
        changes: list[Change] = []
        for shown in loaded.turns:
            html = self._render("turn", shown, loaded.thread, switches, self._key)
            if self._is_new(f"turn-{shown.turn.id}", html):
                changes.append(Change("append", "turns", html))
        for name in ("head", "queue", "controls", "side", "naming"):
            changes += self._replaced(name, self._render(name, loaded))
        title = self._render("page_title", loaded.thread)
        if self._is_new("title", title):
            changes.append(Change("title", "", title))
        self._after = max(self._after, loaded.depth)
        if changes:
            if self._is_open:
                # What an action reported was true until this change.
                changes.append(Change("remove", "flash"))
            changes.append(Change("remove", "chat-empty", id=str(self._after)))
        self._is_open = True
        return changes

    def _replaced(self, name: str, html: str) -> list[Change]:
        return [Change("replace", f"chat-{name}", html)] if self._is_new(name, html) else []

    def _is_new(self, name: str, html: str) -> bool:
        is_new = self._sent.get(name) != html
        self._sent[name] = html
        return is_new

    def _tail_changes(self) -> list[Change]:
        live, tail, turn = self._live, self._tail, self._active_turn()
        # Before the first claim the run is in the queue, and has no turn whose end this is.
        if live is None or tail is None or turn is None or live.ended:
            return []
        return tail.changes(live, responses=turn.responses, known_calls=turn.call_ids)

    def _active_turn(self) -> ShownTurn | None:
        if self._conversation is None or self._live is None:
            return None
        turns = (shown for shown in self._conversation.turns if shown.turn.run_id == self._live.run_id)
        return next((shown for shown in turns if not shown.ended), None)

    def _follow(self, run: RunView | None) -> None:
        """Follow this run's events, and no other's."""
        if run is None or (self._live is not None and self._live.run_id == run.id):
            return
        if self._follower is not None:
            self._follower.cancel()
        self._live, self._tail = LiveRun(run.id), Tail(run.id, self._render)
        self._follower = self._begin(self._read(self._live))

    async def _read(self, live: LiveRun) -> None:
        try:
            async with aclosing(self._client.runs.events(live.run_id)) as events:
                async for _, event in events:
                    self._stale = live.feed(event) or self._stale
                    self._events += 1
                    self._wake.set()
        except NovaError as error:
            self._fail(error)

    async def _watch(self) -> None:
        """Look for what other clients do in this thread, and for the state of the other threads."""
        seen: Sequence[tuple[object, ...]] | None = None
        looks = 0
        try:
            while True:
                await asyncio.sleep(_WATCH_S)
                looks += 1
                if looks % _THREADS_EVERY == 0:
                    await self._look_around()
                runs = (await self._client.threads.runs(self._thread_id, media=False, limit=20)).items
                state = [(run.id, run.status, run.position, run.waiting_for, run.message) for run in runs]
                if state != seen:
                    self._stale = True
                    self._wake.set()
                seen = state
        except NovaError as error:
            self._fail(error)

    async def _look_around(self) -> None:
        listed, self._around = await asyncio.gather(self._look(), load_around(self._client, self._thread_id))
        self._listed = listed
        loaded = self._conversation
        titles = {thread.id: thread.title for thread in listed.threads}
        # A title is made after a run, and whether a worker is alive changes without one.
        if loaded and (loaded.queue or titles.get(self._thread_id, loaded.thread.title) != loaded.thread.title):
            self._stale = True
        self._wake.set()

    def _fail(self, error: NovaError) -> None:
        self._error = error
        self._wake.set()
