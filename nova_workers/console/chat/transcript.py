"""A conversation from the ledger: turns with their messages, in the order in which they were said."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from nova_workers.base.vocabulary import ENDED_TURNS
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.console.chat.sent_files import SentFile, files_of_call, load_files
from nova_workers.console.chat.wording import Outcome, outcome_of
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.content import ContentBlock, text_of
from nova_workers.contracts.http.wire import MessageView, RunView, ThreadView, ToolCallView, TurnView, UsageView

PAGE_TURNS = 20
_NEW_TURNS = 2
"""While a conversation is open, one turn is under way, and one ended just now."""
_MESSAGES = 200
_RUNS = 50
"""Most runs of a thread that are looked through for open ones; a thread with more queued messages shows the newest."""

_ACTIVE = frozenset({"running", "waiting"})
_OPEN = _ACTIVE | {"queued", "scheduled"}


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a document of a message.

    Attributes:
        place: Of the block in its message; of one within a tool result with a dot, such as ``0.2``.
        kind: ``image`` or ``file`` if its bytes are in the message; ``text``; or ``name``.
        title: Its name, as far as it has one.
        text: Of the kind ``text``.
    """

    place: str
    kind: str
    title: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a turn.

    Attributes:
        kind: ``user``, ``text``, ``thinking``, ``call``, ``steering``, ``summary``, ``media`` or ``files``.
        text: Of all kinds but calls, media and files.
        call: The tool call.
        media: Images and documents.
        files: What the agent sent.
        message: The message that the piece is from.
    """

    kind: str
    message: MessageView
    text: str = ""
    call: ToolCallView | None = None
    media: tuple[Media, ...] = ()
    files: tuple[SentFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn with its pieces.

    Attributes:
        responses: How many responses of the model are in `parts`.
        run: The turn's run; None for one of long ago.
        inherited: Whether the turn is from before the fork.
    """

    turn: TurnView
    parts: tuple[Part, ...]
    responses: int
    run: RunView | None
    inherited: bool

    @property
    def ended(self) -> bool:
        """Whether nothing follows in this turn."""
        return self.turn.status in ENDED_TURNS

    @property
    def query(self) -> str:
        """The text that began the turn."""
        return next((part.text for part in self.parts if part.kind == "user"), "")

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None where there is nothing to say about that."""
        return outcome_of(self.turn, self.run)

    @property
    def call_ids(self) -> frozenset[str]:
        """The tool calls that are in `parts`."""
        return frozenset(part.call.id for part in self.parts if part.call is not None)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A page of a conversation.

    Attributes:
        turns: Oldest first.
        earlier: The depth at which the page before ends; None if this is the first.
        later: Whether there are turns after these.
        runs: The thread's newest runs.
        active: The run that is under way.
        queue: Runs that wait for their turn, in order, and then those that are scheduled.
        messages: Those of `turns`, in order.
    """

    thread: ThreadView
    turns: tuple[ShownTurn, ...]
    earlier: int | None
    later: bool
    runs: tuple[RunView, ...]
    active: RunView | None
    queue: tuple[RunView, ...]
    messages: tuple[MessageView, ...]

    @property
    def depth(self) -> int:
        """The depth of the newest ended turn; -1 without one."""
        return max((shown.turn.depth for shown in self.turns if shown.ended), default=-1)

    @property
    def usage(self) -> UsageView:
        """The usage of the thread's own newest runs; the cost is None where none of them has a known price."""
        used = [run.usage for run in self.runs if run.usage is not None]
        costs = [usage.cost_usd for usage in used if usage.cost_usd is not None]
        return UsageView(
            input_tokens=sum(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens for usage in used),
            output_tokens=sum(usage.output_tokens for usage in used),
            cost_usd=sum(costs) if costs else None,
        )

    @property
    def next_run(self) -> RunView | None:
        """The run whose events are next: the active one, else the first of the queue."""
        queued = (run for run in self.queue if run.status == "queued")
        return self.active or next(queued, None)


async def load_conversation(
    client: NovaClient,
    thread_id: str,
    *,
    to_depth: int | None = None,
    after: int | None = None,
    seen: Conversation | None = None,
) -> Conversation:
    """Return a page of a conversation.

    Args:
        client: A client of the thread's tenant.
        to_depth: The depth of the last turn; None is the newest.
        after: Only turns below this depth's turn.
        seen: The newest page as it was loaded before, with an `after` that was not greater: its messages are not read
            again.
    """
    thread, turns, runs = await asyncio.gather(
        client.threads.get(thread_id),
        _turns(client, thread_id, to_depth, after),
        client.threads.runs(thread_id, media=False, limit=_RUNS),
    )
    found = sorted((turn for turn in turns.items if after is None or turn.depth > after), key=lambda turn: turn.depth)
    messages, files = await asyncio.gather(
        _messages(client, thread_id, found, () if seen is None else seen.messages), load_files(client, found)
    )
    by_turn: dict[str, list[MessageView]] = {}
    for message in messages:
        by_turn.setdefault(message.turn_id, []).append(message)
    open_runs = [run for run in runs.items if run.status in _OPEN]
    by_id = {run.id: run for run in runs.items}
    queue = sorted((run for run in open_runs if run.status in ("queued", "scheduled")), key=_place)
    if queue and queue[0].status == "queued" and not any(run.status in _ACTIVE for run in open_runs):
        # Only a single run says whether a worker is alive.
        queue[0] = await client.runs.get(queue[0].id)
    first = min((turn.depth for turn in turns.items), default=0)
    return Conversation(
        thread=thread,
        turns=tuple(
            _shown(turn, by_turn.get(turn.id, []), by_id.get(turn.run_id or ""), thread_id, files) for turn in found
        ),
        earlier=first - 1 if turns.next_cursor is not None else None,
        later=to_depth is not None and thread.turn_count > 0 and await _has_later(client, thread_id, to_depth),
        runs=tuple(runs.items),
        active=next((run for run in open_runs if run.status in _ACTIVE), None),
        queue=tuple(queue),
        messages=tuple(messages),
    )


def said_text(content: Sequence[ContentBlock]) -> str:
    """Return the text of a message."""
    return text_of(tuple(content))


async def _turns(client: NovaClient, thread_id: str, to_depth: int | None, after: int | None) -> Page[TurnView]:
    """Return the newest turns up to a depth: all that are below the turn of `after`, or as many as a page shows."""
    if after is not None:
        page = await client.threads.turns(thread_id, to_depth=to_depth, limit=_NEW_TURNS)
        if page.next_cursor is None or page.items[-1].depth <= after:
            return page
    return await client.threads.turns(thread_id, to_depth=to_depth, limit=PAGE_TURNS)


async def _messages(
    client: NovaClient, thread_id: str, turns: Sequence[TurnView], seen: Iterable[MessageView]
) -> list[MessageView]:
    """Return the messages of some turns. A turn only grows, so those that were seen are not read again."""
    if not turns:
        return []
    ids = {turn.id for turn in turns}
    known = [message for message in seen if message.turn_id in ids]
    news = iterate(
        client.threads.messages,
        thread_id,
        from_depth=turns[0].depth,
        to_depth=turns[-1].depth,
        after=known[-1].id if known else None,
        limit=_MESSAGES,
    )
    return known + [message async for message in news]


async def _has_later(client: NovaClient, thread_id: str, depth: int) -> bool:
    newest = (await client.threads.turns(thread_id, limit=1)).items
    return bool(newest) and newest[0].depth > depth


def _place(run: RunView) -> tuple[bool, float, int]:
    start = run.start_at.timestamp() if run.status == "scheduled" and run.start_at is not None else 0.0
    return (run.status == "scheduled", start, run.position or 0)


def _shown(
    turn: TurnView,
    messages: Iterable[MessageView],
    run: RunView | None,
    thread_id: str,
    files: Mapping[str, SentFile],
) -> ShownTurn:
    calls = {call.id: call for call in turn.tool_calls}
    parts: list[Part] = []
    responses = 0
    for message in messages:
        match message.kind:
            case "query" | "steering":
                kind = "user" if message.kind == "query" else "steering"
                parts.append(Part(kind, message, said_text(message.content), media=_media(message.content)))
            case "response":
                responses += 1
                parts += _response(message, calls, files)
            case "tool_results":
                if media := _result_media(message.content):
                    parts.append(Part("media", message, media=media))
            case _:
                parts.append(Part("summary", message, said_text(message.content)))
    return ShownTurn(turn, tuple(parts), responses, run, inherited=turn.thread_id != thread_id)


def _response(message: MessageView, calls: dict[str, ToolCallView], files: Mapping[str, SentFile]) -> list[Part]:
    parts: list[Part] = []
    for block in message.content:
        match block.get("type"):
            case "text" if str(block.get("text") or "").strip():
                parts.append(Part("text", message, str(block["text"])))
            case "thinking" if str(block.get("thinking") or "").strip():
                parts.append(Part("thinking", message, str(block["thinking"])))
            case "tool_use" if (call := calls.get(str(block.get("id")))) is not None:
                parts.append(Part("call", message, call=call))
                if sent := files_of_call(call, files):
                    parts.append(Part("files", message, files=sent))
            case _:
                pass
    return parts


def _media(content: Sequence[ContentBlock], within: str = "") -> tuple[Media, ...]:
    return tuple(
        _medium(f"{within}{at}", block)
        for at, block in enumerate(content)
        if block.get("type") in ("image", "document")
    )


def _medium(place: str, block: ContentBlock) -> Media:
    source = block.get("source")
    known = cast(ContentBlock, source) if isinstance(source, dict) else {}
    title = str(block.get("title") or known.get("url") or known.get("file_id") or str(block["type"]).capitalize())
    match known.get("type"):
        case "base64":
            return Media(place, "image" if block["type"] == "image" else "file", title)
        case "text":
            return Media(place, "text", title, str(known.get("data") or ""))
        case _:
            return Media(place, "name", title)


def _result_media(content: Sequence[ContentBlock]) -> tuple[Media, ...]:
    """Return the images and documents inside of tool results."""
    found: list[Media] = []
    for at, block in enumerate(content):
        inner = block.get("content")
        if isinstance(inner, list):
            found += _media(cast(list[ContentBlock], inner), f"{at}.")
    return tuple(found)
