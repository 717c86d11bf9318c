"""The contract of inbound channels: ours and the example fulfil it, and each kind of wrong channel is found.

Telegram's channel is not among them. In its chats a long reply is several messages, and a conversation is a number that
the server gives, so that it needs a place with rules of its own; it has its tests over the wire, in
`tests/integration/cli/telegram`.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest

from nova_workers.base.errors import ConfigurationError, DeliveryFailed
from nova_workers.base.program import OutputFailed
from nova_workers.channels import InboundChannel, InboundParts, Origin, Reply, SentMessages, Update
from nova_workers.channels.packages import find_channel, make_channel
from nova_workers.channels.pipe import PipeChannel
from nova_workers.sdk.testing.channels import InboundChannelContract, Place, starter
from tests.requirements import proves
from tests.support.data.example_package import PACKAGE, load


class _Output(io.StringIO):
    """The stdout of a channel, whose reader may leave."""

    is_broken = False

    def write(self, text: str, /) -> int:
        if self.is_broken:
            raise OutputFailed(BrokenPipeError(errno.EPIPE, "the reader left"))
        return super().write(text)


class PipePlace:
    """A program that starts the channel of a pipe, and repeats what is not done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._output = _Output()
        self._lines: dict[str, str] = {}
        self._sources: list[TextIO] = []
        self._sinks: list[int] = []

    def close(self) -> None:
        """End all channels, after their event loop."""
        for sink in self._sinks:
            os.close(sink)
        for source in self._sources:
            source.close()

    def open(self, parts: InboundParts) -> InboundChannel:
        source, sink = os.pipe()
        self._sinks.append(sink)
        self._sources.append(os.fdopen(source))
        self._patch.setattr(sys, "stdin", self._sources[-1])
        self._patch.setattr(sys, "stdout", self._output)
        done = {line["update_id"] for line in self._replies() if line["type"] == "done"}
        for update_id, line in self._lines.items():
            if update_id not in done:
                self._send(line)
        return PipeChannel(parts.name, streams=True)

    def write(self, conversation: str, sender: str, text: str) -> None:
        update_id = str(len(self._lines))
        given = {"id": update_id, "conversation": conversation, "sender": sender, "text": text}
        self._lines[update_id] = json.dumps(given)
        self._send(self._lines[update_id])

    def write_nonsense(self) -> None:
        self._send("{no message")

    def shown(self, conversation: str) -> list[str]:
        shown = {line["id"]: line["text"] for line in self._replies() if line.get("conversation") == conversation}
        return list(shown.values())

    @contextmanager
    def broken(self) -> Generator[None]:
        self._output.is_broken = True
        yield
        self._output.is_broken = False

    def _send(self, line: str) -> None:
        if self._sinks:
            os.write(self._sinks[-1], f"{line}\n".encode())

    def _replies(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._output.getvalue().splitlines()]


class TestPipe(InboundChannelContract):
    """Of `nova channels pipe`."""

    @pytest.fixture
    def place(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
        place = PipePlace(monkeypatch)
        yield place
        place.close()

    def test_a_failure_is_raised_and_a_later_delivery_succeeds(self, place: Place, start: Callable[[], Any]) -> None:
        """Let the reader leave, who does not come back."""

        failures: list[DeliveryFailed] = []

        async def scenario() -> None:
            async with start() as channel:
                place.write("kitchen", "ann", "a question")
                update = await channel.next()
                with place.broken(), pytest.raises(DeliveryFailed) as failure:
                    await channel.port.deliver(answer_to(update))
                failures.append(failure.value)

        with pytest.raises(OutputFailed):
            asyncio.run(asyncio.wait_for(scenario(), 30))
        assert [failure.retryable for failure in failures] == [False]


def answer_to(update: Update) -> Reply:
    """Return an answer."""
    return Reply(type="answer", id="run_1", update_id=update.id, conversation="kitchen", sender="ann", text="Yes.")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The tests of the example's channel, as a module."""
    monkeypatch.syspath_prepend(PACKAGE)
    yield load(PACKAGE / "tests" / "test_channel.py")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_desk"]:
        del sys.modules[name]


class TestTheExample(InboundChannelContract):
    """Of `docs/examples/package`."""

    @pytest.fixture
    def place(self, example: Any, tmp_path: Path) -> Place:
        return example.FolderPlace(tmp_path)


_ORDER = InboundChannelContract.test_messages_arrive_in_order_with_ids_of_their_own
_AGAIN = InboundChannelContract.test_a_message_comes_again_until_it_is_done
_ONCE = InboundChannelContract.test_a_reply_is_shown_once_in_its_conversation
_FAILS = InboundChannelContract.test_a_failure_is_raised_and_a_later_delivery_succeeds
_TAKEN = partial(InboundChannelContract.test_every_reply_is_taken, kind="empty")


class _Wrong:
    """The example's channel with a fault."""

    def __init__(self, right: Any, fault: str) -> None:
        self.name, self.streams, self.max_file_bytes = right.name, right.streams, right.max_file_bytes
        self._right = right
        self._fault = fault

    async def updates(self) -> AsyncIterator[Update]:
        async for update in self._right.updates():
            yield update.model_copy(update={"id": f"{id(self)}-{update.id}"}) if self._fault == "other ids" else update

    async def deliver(self, reply: Reply) -> None:
        if self._fault == "adds":
            reply = reply.model_copy(update={"id": f"{reply.id}-{time.monotonic_ns()}"})
        if self._fault == "refuses empty texts" and not reply.text:
            raise DeliveryFailed("No text.", retryable=True)
        try:
            await self._right.deliver(reply)
        except DeliveryFailed:
            if self._fault != "swallows":
                raise

    async def done(self, update: Origin) -> None:
        if self._fault != "never done":
            await self._right.done(update)

    async def close(self) -> None:
        await self._right.close()


@proves("channels.contract")
@pytest.mark.parametrize(
    ("fault", "check", "problem"),
    [
        ("other ids", _AGAIN, r"has another id, after a restart"),
        ("never done", _AGAIN, r"A message came again after it was done"),
        ("adds", _ONCE, r"is shown twice"),
        ("swallows", _FAILS, r"DID NOT RAISE"),
        ("refuses empty texts", _TAKEN, r"would be delivered again each time"),
    ],
)
def test_the_contract_finds_what_is_wrong_with_a_channel(
    fault: str, check: Callable[..., None], problem: str, example: Any, tmp_path: Path
) -> None:
    place = example.FolderPlace(tmp_path)
    right: Callable[[InboundParts], InboundChannel] = place.open

    def open_wrongly(parts: InboundParts) -> InboundChannel:
        return _Wrong(right(parts), fault)

    place.open = open_wrongly
    with pytest.raises((AssertionError, pytest.fail.Exception), match=problem):
        check(InboundChannelContract(), place=place, start=starter(place))


class _Unsent(SentMessages):
    """Remembers nothing."""

    def messages(self, reply: Reply) -> tuple[str, ...]:
        return ()

    async def add_message(self, reply: Reply, message_id: str) -> None:
        pass


_GOOD = (PACKAGE / "acme_desk" / "channel.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import acme_nothing", r"bad_channel\.py:1: the module 'bad_channel' cannot be imported"),
        ("raise SystemExit(3)", r"bad_channel\.py:1: the module 'bad_channel' ends the process in its import"),
        ("def channel():\n    pass", r"bad_channel\.py:1: .*is no function that takes an InboundParts"),
        ("other = 1", r"'bad_channel:channel', the channel 'bad', is no function"),
        ("def channel(parts):\n    return parts.nothing", r"bad_channel\.py:2: the channel 'bad': AttributeError"),
        ("def channel(parts):\n    return 1", r"int: the channel 'bad' has no 'name' of the type str"),
        (_GOOD.replace("self.name = name", "self.name = 'x'"), r"is called 'x'; expected the name of its InboundParts"),
        (_GOOD.replace("async def done(self, update", "def done(self, update"), r"done of the channel .* 'async def"),
        (_GOOD.replace("def deliver(self, reply", "def deliver(self, reply, more"), r"has no method deliver\(reply\)"),
    ],
)
@proves("channels.packages")
def test_a_channel_that_cannot_be_used_is_refused_with_its_place(
    code: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, "bad-channel", "bad = bad_channel:channel")
    (tmp_path / "bad_channel.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(ConfigurationError, match=problem):
            make_channel(find_channel("bad"), InboundParts("bad", {"DESK_FOLDER": str(tmp_path)}, _Unsent()))
    finally:
        sys.modules.pop("bad_channel", None)


def test_channels_that_are_not_there_or_twice_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        _package(tmp_path, name, f"chat = {name}:channel")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"'one:channel' of one 1\.0 and 'two:channel' of two 1\.0 have the"):
        find_channel("chat")
    with pytest.raises(ConfigurationError, match=r"names the channel 'mail' .*; there are: chat\. Install"):
        find_channel("mail")


def _package(folder: Path, name: str, entry: str) -> None:
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[nova_workers.inbound_channels]\n{entry}\n")
