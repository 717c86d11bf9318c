"""The contract of inbound channels, as tests that an author's class inherits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import pytest

from nova_workers.base.errors import DeliveryFailed
from nova_workers.channels import InboundChannel, InboundParts, Reply, SentMessages, Update
from nova_workers.channels.packages import check_channel
from nova_workers.channels.port import File, ReplyType

_NAME: Final = "contract"
_TEST_S: Final = 60.0
_MOST_TICKS: Final = 12
"""A delivery is canceled after each number of turns of the event loop up to this."""
_TYPES: Final[tuple[ReplyType, ...]] = (
    "answer",
    "question",
    "approval",
    "closed",
    "failure",
    "refusal",
    "notice",
    "notification",
)
_LONG: Final = "A sentence of a long answer. " * 1_000
_STRANGE: Final = "\u202e\U0001f9d1\u200d\U0001f680 <b>*_`[x](y)`_*</b> & \x07 \\n {{7*7}}"


class Place(Protocol):
    """The other side of a channel, as its tests have it: a server of theirs, a folder, a mailbox."""

    def open(self, parts: InboundParts) -> InboundChannel:
        """Return the channel, as a process that starts makes it. What is on the other side stays."""
        ...

    def write(self, conversation: str, sender: str, text: str) -> None:
        """Let a person write a message."""
        ...

    def write_nonsense(self) -> None:
        """Let something come in that is no message."""
        ...

    def shown(self, conversation: str) -> Sequence[str]:
        """Return the texts that people see in a conversation, beside those of `write`, oldest first."""
        ...

    def broken(self) -> AbstractContextManager[None]:
        """Let no reply be shown within the block."""
        ...


def starter(place: Place) -> Callable[[], Any]:
    """Return a function that starts the channel of a place, as a process that takes the place of the one before."""
    messages = _Messages()

    @asynccontextmanager
    async def start() -> AsyncGenerator[_Started]:
        channel = place.open(InboundParts(_NAME, {}, messages))
        updates = aiter(channel.updates())
        try:
            yield _Started(channel, updates)
        finally:
            if isinstance(updates, AsyncGenerator):
                await updates.aclose()
            await channel.close()

    return start


class InboundChannelContract:
    """Holds an inbound channel to its contract. A subclass has a fixture ``place``.

    Such as::

        class TestFolderChannel(InboundChannelContract):
            @pytest.fixture
            def place(self, tmp_path):
                return FolderPlace(tmp_path)
    """

    @pytest.fixture
    def place(self) -> Place:
        """Return the other side of the channel. For the subclass."""
        raise NotImplementedError("The contract of a channel needs a fixture 'place'; see its docstring.")

    @pytest.fixture
    def start(self, place: Place) -> Callable[[], Any]:
        """Return a function that starts the channel. See `starter`."""
        return starter(place)

    def test_it_has_the_form_of_a_channel(self, place: Place) -> None:
        """Check it as the process that serves it does."""
        check_channel(place.open(InboundParts(_NAME, {}, _Messages())), _NAME)

    def test_messages_arrive_in_order_with_ids_of_their_own(self, place: Place, start: Callable[[], Any]) -> None:
        """Write in two conversations."""

        async def scenario() -> None:
            async with start() as channel:
                for number in range(3):
                    place.write("kitchen", "ann", f"message {number}")
                place.write("office", "bob", "another")
                updates = [await channel.next() for _ in range(4)]
            found = [(update.conversation, update.sender, update.text) for update in updates]
            kitchen = [each for each in found if each[0] == "kitchen"]
            assert kitchen == [("kitchen", "ann", f"message {number}") for number in range(3)]
            assert ("office", "bob", "another") in found
            assert len({update.id for update in updates}) == len(updates), "Two messages have the same id."

        _run(scenario())

    def test_a_message_comes_again_until_it_is_done(self, place: Place, start: Callable[[], Any]) -> None:
        """End the process before a message is done, and another one after it."""

        async def scenario() -> None:
            place.write("kitchen", "ann", "first")
            async with start() as channel:
                first = await channel.next()
            async with start() as channel:
                again = await channel.next()
                assert again == first, "The message is not the same, or has another id, after a restart."
                await channel.port.done(again.origin())
                await channel.port.done(again.origin())
            place.write("kitchen", "ann", "second")
            async with start() as channel:
                assert (await channel.next()).text == "second", "A message came again after it was done."

        _run(scenario())

    def test_what_is_no_message_stops_nothing(self, place: Place, start: Callable[[], Any]) -> None:
        """Let nonsense come in, and a message after it."""

        async def scenario() -> None:
            async with start() as channel:
                place.write_nonsense()
                place.write("kitchen", "ann", "a message")
                assert (await channel.next()).text == "a message"

        _run(scenario())

    def test_a_reply_is_shown_once_in_its_conversation(self, place: Place, start: Callable[[], Any]) -> None:
        """Deliver it twice, and again after a restart."""

        async def scenario() -> None:
            async with start() as channel:
                update = await self._asked(place, channel)
                reply = _reply(update, "the answer")
                await channel.port.deliver(reply)
                await channel.port.deliver(reply)
            async with start() as channel:
                await channel.port.deliver(reply)
                await channel.port.deliver(_reply(update, "another answer", id="run_2"))
            assert _count(place, "the answer") == 1, "A reply that came again under its id is shown twice."
            assert _count(place, "another answer") == 1
            assert list(place.shown("office")) == []

        _run(scenario())

    def test_a_delivery_that_is_interrupted_is_completed_by_the_next(
        self, place: Place, start: Callable[[], Any]
    ) -> None:
        """Cancel a delivery after each of its first turns of the event loop, and deliver again after a restart."""

        async def scenario() -> None:
            async with start() as channel:
                update = await self._asked(place, channel)
            for ticks in range(_MOST_TICKS):
                reply = _reply(update, f"answer {ticks}.", id=f"run_{ticks}")
                async with start() as channel:
                    delivering = asyncio.create_task(channel.port.deliver(reply))
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    delivering.cancel()
                    await asyncio.gather(delivering, return_exceptions=True)
                async with start() as channel:
                    await channel.port.deliver(reply)
                assert _count(place, reply.text) == 1, f"It was canceled after {ticks} turns, and delivered again."

        _run(scenario())

    def test_partial_answers_are_replaced(self, place: Place, start: Callable[[], Any]) -> None:
        """Deliver an answer that grows, if the channel shows such."""

        async def scenario() -> None:
            async with start() as channel:
                if not channel.port.streams:
                    pytest.skip("It shows no partial answers (streams).")
                update = await self._asked(place, channel)
                for text in ("the", "the answer", "the answer grows"):
                    await channel.port.deliver(_reply(update, text, type="partial"))
                await channel.port.deliver(_reply(update, "the answer grows no more"))
            assert list(place.shown("kitchen")) == ["the answer grows no more"]

        _run(scenario())

    def test_a_failure_is_raised_and_a_later_delivery_succeeds(self, place: Place, start: Callable[[], Any]) -> None:
        """Let the other side fail, which the channel must raise: a reply is delivered again only after an error."""

        async def scenario() -> None:
            async with start() as channel:
                update = await self._asked(place, channel)
                reply = _reply(update, "the answer")
                with place.broken(), pytest.raises(DeliveryFailed):
                    await channel.port.deliver(reply)
                await channel.port.deliver(reply)
            assert _count(place, "the answer") == 1

        _run(scenario())

    @pytest.mark.parametrize("kind", [*_TYPES, "long", "strange", "empty", "file"])
    def test_every_reply_is_taken(self, kind: str, place: Place, start: Callable[[], Any]) -> None:
        """Deliver a reply of a kind. The channel shows it, or says that it never will."""

        async def scenario() -> None:
            async with start() as channel:
                update = await self._asked(place, channel)
                would_repeat = False
                try:
                    await channel.port.deliver(_of_kind(kind, update))
                except DeliveryFailed as error:
                    would_repeat = error.retryable
                assert not would_repeat, "It fails each time, and would be delivered again each time."

        _run(scenario())

    async def _asked(self, place: Place, channel: _Started) -> Update:
        """Return a message that came in, as there is for each reply."""
        place.write("kitchen", "ann", "a question")
        return await channel.next()


class _Started:
    """A channel that is open."""

    def __init__(self, port: InboundChannel, updates: AsyncIterator[Update]) -> None:
        self.port = port
        self._updates = updates

    async def next(self) -> Update:
        return await anext(self._updates)


class _Messages(SentMessages):
    """Remembers messages as the fleet does for the processes of a channel."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[str, ...]] = {}

    def messages(self, reply: Reply) -> tuple[str, ...]:
        return self._messages.get(reply.id, ())

    async def add_message(self, reply: Reply, message_id: str) -> None:
        self._messages[reply.id] = (*self.messages(reply), message_id)


def _run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, _TEST_S))


def _reply(update: Update, text: str, *, type: ReplyType = "answer", id: str = "run_1", **fields: Any) -> Reply:
    return Reply(
        type=type,
        id=id,
        update_id=update.id,
        conversation=update.conversation,
        sender=update.sender,
        text=text,
        run_id="run_1",
        **fields,
    )


def _of_kind(kind: str, update: Update) -> Reply:
    file = File(id="file_1", name="a b.txt", media_type="text/plain", size_bytes=3, content=b"abc")
    special: dict[str, Reply] = {
        "question": _reply(update, "Which one?", type="question", wait_id="wait_1", options=("this", "that")),
        "approval": _reply(update, "May I?", type="approval", wait_id="wait_1"),
        "file": _reply(update, "", type="notification", file=file),
        "long": _reply(update, _LONG),
        "strange": _reply(update, _STRANGE),
        "empty": _reply(update, ""),
    }
    return special.get(kind) or _reply(update, "words", type=next(each for each in _TYPES if each == kind))


def _count(place: Place, text: str) -> int:
    return sum(text in shown for shown in place.shown("kitchen"))
