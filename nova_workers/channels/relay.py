"""What all inbound channels share: each update has its effect once, and its replies are delivered until they arrive.

An update is `done` when its answer was delivered. If the process dies before, the channel brings the update again: it
is submitted under the same key, which returns the same run, and the run's answer is delivered, perhaps a second time
but under the same id.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import TypeVar

import structlog

from nova_workers.channels.conversations import Conversations
from nova_workers.channels.port import InboundChannel, Reply, ReplyType, Update
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.events import (
    Event,
    EventCursor,
    Restart,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    Token,
    Waiting,
)
from nova_workers.contracts.waits import ANSWERABLE, AskApproval, AskUser, WaitView
from nova_workers.errors import (
    ConfigurationError,
    DeliveryFailed,
    Forbidden,
    NovaError,
    Rejected,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from nova_workers.stopping import stop_tasks

__all__ = ["Relay"]

_log = structlog.get_logger(__name__)

ANYONE = "*"
_PARTIAL_EVERY_S = 1.0
_PATIENCE = Retry(attempts=10, base_s=0.5, max_s=30.0)
"""For replies: about two minutes. The API is waited for without an end, with the same pauses."""

T = TypeVar("T")


class Relay:
    """Serves one channel: submits its updates, follows their runs, and delivers the replies."""

    def __init__(
        self,
        client: NovaClient,
        channel: InboundChannel,
        *,
        agent_id: str,
        senders: Collection[str],
        patience: Retry = _PATIENCE,
    ) -> None:
        """Serve a channel.

        Args:
            client: Of the tenant. Its key needs the scope `runs`.
            channel: The channel, which is closed at the end.
            agent_id: The agent of new conversations.
            senders: Who may write; an asterisk permits everyone. Updates of others are dropped and logged.
            patience: Pauses between attempts, and how often a reply is delivered before the update stays undone.
        """
        self._client = client
        self._channel = channel
        self._senders = frozenset(senders)
        self._patience = patience
        self._conversations = Conversations(client, channel.name, agent_id)
        self._open: dict[asyncio.Task[None], asyncio.Event] = {}

    async def run(self) -> None:
        """Serve until the channel ends, and each open run has ended or waits for a person. Cancel it to stop sooner.

        Raises:
            ConfigurationError: There is no such agent.
            Unauthenticated: The API does not know the key.
            Forbidden: The key lacks the scope.
        """
        try:
            # A key that is not valid should show before the first message comes.
            await self._answered(lambda: self._client.threads.list(limit=1))
            async for update in self._channel.updates():
                await self._accept(update)
            for task, settled in [*self._open.items()]:
                waiting = asyncio.create_task(settled.wait())
                await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            await stop_tasks(self._open)
            await self._channel.close()

    async def _accept(self, update: Update) -> None:
        """Submit one update. Updates are submitted in their order; only their runs are concurrent."""
        if not {ANYONE, update.sender} & self._senders:
            _log.warning("channel.sender_refused", channel=self._channel.name, sender=update.sender)
            self._start(update, lambda _: self._channel.done(update))
            return
        try:
            run_id = await self._answered(lambda: self._conversations.submit(update))
        except (Unauthenticated, Forbidden, ConfigurationError):
            # The updates that remain are not lost: they come again when the cause is removed.
            raise
        except Rejected as error:
            refusal = _reply("refusal", update, error.message)
            self._start(update, lambda _: self._close(update, refusal))
            return
        except NovaError:
            # A fault of the API that this update meets. It stays undone, and does not stop those of other people.
            _log.exception("channel.update_failed", channel=self._channel.name, update_id=update.id)
            return
        if run_id is None:
            self._start(update, lambda _: self._channel.done(update))
        else:
            self._start(update, lambda settled: self._follow(update, run_id, settled))

    def _start(self, update: Update, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        settled = asyncio.Event()

        async def guarded() -> None:
            try:
                await work(settled)
            except DeliveryFailed as error:
                _log.warning("channel.update_not_done", channel=self._channel.name, error=error.message)
            except Exception:
                # The update stays undone, and comes again after a restart.
                _log.exception("channel.update_failed", channel=self._channel.name, update_id=update.id)

        task = asyncio.create_task(guarded(), name=f"channel-{self._channel.name}")
        self._open[task] = settled
        task.add_done_callback(lambda ended: self._open.pop(ended, None))

    async def _follow(self, update: Update, run_id: str, settled: asyncio.Event) -> None:
        """Deliver what a run says, until it ends. `settled` is set while it waits for a person."""
        text, shown_s, problem = "", 0.0, ""
        asked: set[str] = set()
        async with aclosing(self._events(run_id)) as events:
            async for event in events:
                match event:
                    case StreamStart() | Restart(agent=None) | Step():
                        text = ""
                        settled.clear()
                    case Token(agent=None):
                        text += event.text
                        if self._channel.streams and time.monotonic() - shown_s >= _PARTIAL_EVERY_S:
                            shown_s = time.monotonic()
                            await self._show(_reply("partial", update, text, run_id))
                    case Waiting() if event.kind in ANSWERABLE:
                        if await self._ask(update, run_id, asked):
                            settled.set()
                    case StreamError():
                        problem = event.error
                    case StreamEnd(final=True):
                        await self._close(update, _end(update, run_id, event, problem))
                    case _:
                        pass

    async def _ask(self, update: Update, run_id: str, asked: set[str]) -> bool:
        """Deliver the open questions of a run that were not asked yet. Return whether there are open ones."""
        waits = await self._answered(lambda: self._conversations.open_waits(run_id))
        for wait in waits:
            if wait.id not in asked:
                asked.add(wait.id)
                await self._deliver(_question(update, wait))
        return bool(waits)

    async def _close(self, update: Update, reply: Reply | None) -> None:
        """Deliver the last reply to an update, and report the update as done."""
        if reply is None or await self._deliver(reply):
            await self._channel.done(update)

    async def _show(self, reply: Reply) -> None:
        try:
            await self._channel.deliver(reply)
        except DeliveryFailed as error:
            # The next one has this text too.
            _log.debug("channel.partial_not_delivered", channel=self._channel.name, error=error.message)

    async def _deliver(self, reply: Reply) -> bool:
        """Deliver a reply, with several attempts. Return whether the channel has it, or refuses it for good."""
        failures = 0
        while True:
            try:
                await self._channel.deliver(reply)
            except DeliveryFailed as error:
                failures += 1
                about = {"channel": self._channel.name, "reply_id": reply.id, "error": error.message}
                if not error.retryable or failures >= self._patience.attempts:
                    _log.error("channel.reply_not_delivered", failures=failures, **about)
                    return not error.retryable
                _log.warning("channel.delivery_retried", failures=failures, **about)
                await asyncio.sleep(error.retry_after_s or self._patience.delay_s(failures))
            else:
                return True

    async def _events(self, run_id: str) -> AsyncGenerator[Event]:
        """Yield the events of a run, each once, also while the API is away for a long time."""
        seen, failures = EventCursor(), 0
        while True:
            try:
                async with aclosing(self._client.runs.events(run_id, after=seen)) as events:
                    async for cursor, event in events:
                        seen, failures = cursor, 0
                        yield event
            except (Unavailable, TooManyRequests) as error:
                failures += 1
                await self._pause(failures, error)
            else:
                return

    async def _answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent request until the API answers it."""
        failures = 0
        while True:
            try:
                return await request()
            except (Unavailable, TooManyRequests) as error:
                failures += 1
                await self._pause(failures, error)

    async def _pause(self, failures: int, error: Unavailable | TooManyRequests) -> None:
        _log.warning("channel.api_away", channel=self._channel.name, failures=failures, error=error.message)
        await asyncio.sleep(self._patience.delay_s(failures))


def _reply(kind: ReplyType, update: Update, text: str, run_id: str | None = None) -> Reply:
    return Reply(
        type=kind,
        id=run_id or update.id,
        update_id=update.id,
        conversation=update.conversation,
        sender=update.sender,
        text=text,
        run_id=run_id,
    )


def _question(update: Update, wait: WaitView) -> Reply:
    request = wait.request
    kind: ReplyType = "question"
    text, options = "", ()
    match request:
        case AskUser():
            text, options = request.question, request.options
        case AskApproval():
            kind, text = "approval", f"{request.reason}\n{request.tool_name} {request.params}"
        case _:
            pass
    named = {"id": wait.id, "wait_id": wait.id, "options": options}
    return _reply(kind, update, text, wait.run_id).model_copy(update=named)


def _end(update: Update, run_id: str, end: StreamEnd, problem: str) -> Reply | None:
    """Return the last reply for a run; None if the answer is in another run, which its message joined."""
    match end.status:
        case "succeeded":
            return _reply("answer", update, end.text or "", run_id)
        case "merged":
            return None
        case _:
            return _reply("failure", update, problem or f"The run was {end.status}.", run_id)
