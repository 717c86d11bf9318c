"""Inbound channels on a real fleet: updates have their effect once, and replies arrive."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest

from nova_workers.base.errors import ConfigurationError, DeliveryFailed
from nova_workers.channels import Attachment, InboundChannel, Origin, Relay, Reply, Update
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.wire import AgentCreate, RunView
from tests.requirements import proves
from tests.support.data.documents import ROOT, blocks
from tests.support.data.example_package import PACKAGE
from tests.support.processes.command_line import Child, Nova, wait_for
from tests.support.processes.fleet import Fleet
from tests.support.processes.installed_packages import copy_into
from tests.support.waiting import stays, until

pytestmark = pytest.mark.fleet

Script = Callable[..., str]

HELLO = {"id": "1", "conversation": "kitchen", "sender": "ann", "text": "hello"}


class MemoryChannel:
    """A channel in memory, with planned failures."""

    max_file_bytes = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.streams = True
        self.incoming: asyncio.Queue[Update | None] = asyncio.Queue()
        self.failures: list[DeliveryFailed] = []
        self.shown: list[Reply] = []
        self.finished: list[str] = []
        self.is_closed = False
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def updates(self) -> AsyncIterator[Update]:
        while (update := await self.incoming.get()) is not None:
            yield update

    async def deliver(self, reply: Reply) -> None:
        await self.accepts.wait()
        if reply.type != "partial" and self.failures:
            raise self.failures.pop(0)
        self.shown.append(reply)

    async def done(self, update: Origin) -> None:
        self.finished.append(update.id)

    async def close(self) -> None:
        self.is_closed = True

    def says(self, update_id: str, text: str, **fields: Any) -> None:
        """Let a person write."""
        given = {"id": update_id, "conversation": "kitchen", "sender": "ann", "text": text}
        self.incoming.put_nowait(Update.model_validate(given | fields))

    def of(self, kind: str) -> list[Reply]:
        """Return the replies of a type."""
        return [reply for reply in self.shown if reply.type == kind]


class Stage:
    """A channel with a name of its own on the fleet, and relays that serve it."""

    def __init__(self, nova: NovaClient) -> None:
        self.nova = nova
        self.channel = MemoryChannel(f"chat-{uuid.uuid4().hex[:8]}")
        self._serving: list[asyncio.Task[None]] = []

    def serve(self, channel: InboundChannel | None = None, agent_id: str = "nova") -> asyncio.Task[None]:
        """Start a relay, as a process would."""
        relay = Relay(
            self.nova,
            channel or self.channel,
            agent_id=agent_id,
            senders=["ann"],
            patience=Retry(attempts=3, base_s=0.01, max_s=0.02),
        )
        self._serving.append(asyncio.create_task(relay.run()))
        return self._serving[-1]

    async def stop(self) -> None:
        """Stop all relays, as a signal does."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def runs(self, conversation: str = "kitchen") -> list[RunView]:
        """Return the runs of a conversation, newest first."""
        (thread,) = (await self.nova.threads.list(label=f"{self.channel.name}:{conversation}")).items
        return (await self.nova.threads.runs(thread.id)).items

    async def agent(self, **spec: Any) -> str:
        """Create an agent on the scripted engine."""
        agent_id = f"agent-{uuid.uuid4().hex[:8]}"
        await self.nova.agents.create(AgentCreate.model_validate({"id": agent_id, "name": "Chatter", **spec}))
        return agent_id


_until = partial(until, timeout_s=30.0)


async def _has_ended(stage: Stage) -> bool:
    """Return whether the conversation has a run that has ended."""
    threads = (await stage.nova.threads.list(label=f"{stage.channel.name}:kitchen")).items
    return bool(threads) and any(run.finished_at is not None for run in await stage.runs())


@pytest.fixture
async def stage(fleet: Fleet) -> AsyncIterator[Stage]:
    async with NovaClient(fleet.api_url, fleet.api_key) as nova:
        stage = Stage(nova)
        yield stage
        await stage.stop()


async def test_each_conversation_has_one_thread_and_each_message_its_answer(stage: Stage) -> None:
    channel = stage.channel
    serving = stage.serve()
    channel.says("1", "hello")
    channel.says("2", "again")
    channel.says("3", "elsewhere", conversation="x" * 300)
    channel.incoming.put_nowait(None)
    await asyncio.wait_for(serving, 60)
    answers = {reply.update_id: (reply.conversation[:7], reply.text) for reply in channel.of("answer")}
    assert answers == {
        "1": ("kitchen", "You said: hello"),
        "2": ("kitchen", "You said: again"),
        "3": ("xxxxxxx", "You said: elsewhere"),
    }
    assert (sorted(channel.finished), channel.is_closed) == (["1", "2", "3"], True)
    newest, oldest = await stage.runs()
    assert (oldest.metadata["event_id"], newest.metadata["event_id"]) == ("1", "2")
    assert newest.metadata["channel"] == channel.name


async def test_updates_of_senders_that_are_not_listed_are_dropped(stage: Stage) -> None:
    stage.serve()
    stage.channel.says("1", "hello", sender="mallory")
    await _until(lambda: stage.channel.finished == ["1"])
    assert stage.channel.shown == []
    assert (await stage.nova.threads.list(label=f"{stage.channel.name}:kitchen")).items == []


@proves("channel.once")
async def test_an_update_that_comes_again_after_a_crash_has_one_run_and_its_answer(stage: Stage) -> None:
    channel = stage.channel
    channel.accepts.clear()
    stage.serve()
    channel.says("1", "hello")
    await _until(lambda: _has_ended(stage))
    await stage.stop()
    assert channel.finished == []
    channel.accepts.set()
    stage.serve()
    channel.says("1", "hello")
    await _until(lambda: channel.finished == ["1"])
    channel.says("1", "hello")
    await _until(lambda: channel.finished == ["1", "1"])
    (run,) = await stage.runs()
    assert [(reply.id, reply.text) for reply in channel.of("answer")] == [(run.id, "You said: hello")] * 2


@proves("channel.once")
async def test_a_persons_answer_goes_to_the_question_and_never_becomes_a_message(stage: Stage, script: Script) -> None:
    channel = stage.channel
    agent_id = await stage.agent(capabilities={"user": {}})
    given = {"question": "Tea?", "options": ["tea", "coffee"], "only_options": True}
    question = {"tool": {"name": "ask_user", "input": given}}
    stage.serve(agent_id=agent_id)
    channel.says("1", script(question, {"say": "It is coming."}))
    (asked,) = await _until(lambda: channel.of("question"))
    assert (asked.text, asked.options, asked.only_options, asked.update_id) == ("Tea?", ("tea", "coffee"), True, "1")
    channel.says("2", "cocoa")
    (refused,) = await _until(lambda: channel.of("refusal"))
    assert "cocoa" in refused.text
    channel.says("3", "coffee")
    await _until(lambda: "1" in channel.finished)
    channel.says("3", "coffee")
    channel.says("4", "coffee", wait_id=asked.wait_id)
    await _until(lambda: "4" in channel.finished)
    assert sorted(channel.finished) == ["1", "2", "3", "3", "4"]
    assert [reply.text for reply in channel.of("answer")] == ["It is coming."]
    (run,) = await stage.runs()
    assert run.metadata["event_id"] == "1"


async def test_the_message_of_a_waiting_run_that_comes_again_is_no_answer_to_it(stage: Stage, script: Script) -> None:
    channel = stage.channel
    agent_id = await stage.agent(capabilities={"user": {}})
    ask = script({"tool": {"name": "ask_user", "input": {"question": "Tea?"}}}, {"say": "It is coming."})
    stage.serve(agent_id=agent_id)
    channel.says("1", ask)
    await _until(lambda: channel.of("question"))
    await stage.stop()
    serving = stage.serve(agent_id=agent_id)
    channel.says("1", ask)
    await _until(lambda: len(channel.of("question")) == 2)
    assert len({reply.id for reply in channel.of("question")}) == 1
    channel.incoming.put_nowait(None)
    # The run waits for a person, so the relay ends with its channel, and the update comes again.
    await asyncio.wait_for(serving, 60)
    assert channel.finished == []
    (run,) = await stage.runs()
    assert run.status == "waiting"


async def test_a_call_that_needs_permission_is_answered_with_yes_or_no(stage: Stage, script: Script) -> None:
    channel = stage.channel
    agent_id = await stage.agent(
        capabilities={"memory": {}}, permissions={"approvals": [{"tool": "memory_save", "decision": "ask"}]}
    )
    fact = f"tea {uuid.uuid4().hex}"
    save = {"tool": {"name": "memory_save", "input": {"content": fact}}}
    stage.serve(agent_id=agent_id)
    channel.says("1", script(save, {"say": "Saved."}))
    (asked,) = await _until(lambda: channel.of("approval"))
    assert "memory_save" in asked.text
    channel.says("2", "perhaps")
    (refused,) = await _until(lambda: channel.of("refusal"))
    assert "yes or no" in refused.text
    channel.says("3", "Yes.")
    await _until(lambda: channel.of("answer"))
    assert [memory.content for memory in (await stage.nova.memories.list(contains=fact)).items] == [fact]


async def test_a_reply_is_delivered_again_until_the_channel_has_it_or_refuses_it(stage: Stage) -> None:
    channel = stage.channel
    channel.failures = [DeliveryFailed("busy", retryable=True), DeliveryFailed("busy", retryable=True)]
    stage.serve()
    channel.says("1", "hello")
    await _until(lambda: channel.finished == ["1"])
    channel.failures = [DeliveryFailed("blocked", retryable=False)]
    channel.says("2", "hello")
    await _until(lambda: channel.finished == ["1", "2"])
    assert [reply.update_id for reply in channel.of("answer")] == ["1"]
    # Without the reply the update is not done, so that it comes again.
    channel.failures = [DeliveryFailed("busy", retryable=True) for _ in range(3)]
    channel.says("3", "hello")
    await _until(lambda: not channel.failures)
    await stays(lambda: channel.finished == ["1", "2"], for_s=0.3)


async def test_what_the_api_refuses_and_what_fails_is_reported_in_the_conversation(
    stage: Stage, script: Script
) -> None:
    channel = stage.channel
    stage.serve()
    broken = Attachment(media_type="image/png", data=base64.b64encode(b"no image").decode())
    channel.says("1", "look", attachments=(broken,))
    (refused,) = await _until(lambda: channel.of("refusal"))
    assert "image" in refused.text
    channel.says("2", script({"error": {"message": "It broke.", "kind": "model_error", "retryable": False}}))
    (failed,) = await _until(lambda: channel.of("failure"))
    assert "The model failed at this message." in failed.text
    assert failed.detail is not None
    assert "It broke." in failed.detail
    note = Attachment(media_type="text/plain", data=base64.b64encode(b"a note").decode())
    channel.says("3", "read", attachments=(note,))
    await _until(lambda: "3" in channel.finished)
    assert [block["type"] for block in (await stage.runs())[0].message] == ["text", "document"]


async def test_an_update_that_no_request_can_carry_is_refused_and_stops_no_other(stage: Stage, script: Script) -> None:
    channel = stage.channel
    serving = stage.serve()
    note = Attachment(media_type="text/plain", data=base64.b64encode(b"a note").decode())
    channel.says("1", "read", attachments=(note,) * 300)
    channel.says("2", script({"tool": {"name": "ask_user", "input": {"question": "Tea?"}}}, {"say": "Fine."}))
    await _until(lambda: serving.done() or channel.of("question"))
    assert "message" in channel.of("refusal")[0].text
    channel.says("3", "y" * 20_000)
    await _until(lambda: serving.done() or len(channel.of("refusal")) == 2)
    assert "text" in channel.of("refusal")[1].text
    channel.says("4", "yes")
    await _until(lambda: serving.done() or channel.of("answer"))
    assert sorted(channel.finished) == ["1", "2", "3", "4"]


async def test_an_unknown_agent_ends_the_channel_and_leaves_the_update_undone(stage: Stage) -> None:
    stage.channel.says("1", "hello")
    with pytest.raises(ConfigurationError, match="not-there"):
        await stage.serve(agent_id="not-there")
    assert stage.channel.finished == []


@contextmanager
def _pipe(nova: Nova) -> Generator[tuple[Child, TextIO]]:
    """Start the program of `nova channels pipe`, and give it with its stdin."""
    source, sink = os.pipe()
    arguments = ("pipe", "--allow", "ann", "--name", f"pipe-{uuid.uuid4().hex[:8]}")
    try:
        with (
            open(sink, "w", encoding="utf-8") as stdin,
            nova.child(*arguments, stdin=source, program="nova_workers.channels") as child,
        ):
            yield child, stdin
    finally:
        os.close(source)


def test_a_program_is_a_channel_by_lines_of_json(nova: Nova) -> None:
    long = json.dumps({**HELLO, "id": "3", "text": "x" * (17 << 20)})
    lines = (json.dumps(HELLO), "", "{nonsense", long, json.dumps({"id": "2"}), json.dumps(HELLO))
    with _pipe(nova) as (child, stdin):
        stdin.writelines(f"{line}\n" for line in lines)
        stdin.close()
        done = child.done()
    assert (done.code, done.err) == (0, "")
    replies = done.lines
    answers = [line for line in replies if line["type"] == "answer"]
    assert [(line["text"], line["conversation"]) for line in answers] == [("You said: hello", "kitchen")] * 2
    assert len({line["run_id"] for line in answers}) == 1
    assert [line["update_id"] for line in replies if line["type"] == "refusal"] == [None, None, "2"]
    assert sorted(line["update_id"] for line in replies if line["type"] == "done") == ["1", "1", "2"]


def test_a_pipe_with_an_unknown_key_ends_with_a_sentence(nova: Nova) -> None:
    nova.env["NOVA_API_KEY"] = "nova_wrong"
    with _pipe(nova) as (child, _):
        done = child.done()
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("nova: ")
    assert len(done.err.splitlines()) == 1


async def test_a_channels_name_that_could_be_part_of_a_conversation_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="'chat:eu' has a colon"):
        Relay(stage.nova, MemoryChannel("chat:eu"), agent_id="nova", senders=["ann"])


def test_a_signal_ends_a_pipe_whose_stdin_is_open(nova: Nova) -> None:
    with _pipe(nova) as (child, stdin):
        print(json.dumps(HELLO), file=stdin, flush=True)
        child.reads('"type": "answer"')
        child.terminate()
        assert child.done().code == 0


@pytest.mark.parametrize("keeps_stdin", [True, False])
def test_a_pipe_whose_reader_left_ends(nova: Nova, *, keeps_stdin: bool) -> None:
    with _pipe(nova) as (child, stdin):
        child.stop_reading()
        print(json.dumps(HELLO), file=stdin, flush=True)
        if not keeps_stdin:
            stdin.close()
        assert child.done().code == 141


async def test_the_channel_of_the_guide_works(stage: Stage, tmp_path: Path) -> None:
    example, *_ = [block.text for block in blocks("python", ROOT / "docs" / "channels.md")]
    assert len(example.splitlines()) <= 60
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(example, "channels.md", "exec"), names)
    channel = names["FolderChannel"](stage.channel.name, tmp_path)
    stage.serve(channel)
    letter = tmp_path / "in" / "1.json"
    letter.write_text(json.dumps({"conversation": "kitchen", "sender": "ann", "text": "hello"}))
    await _until(lambda: not letter.exists())
    (answer,) = (tmp_path / "out").glob("*.json")
    assert json.loads(answer.read_text())["text"] == "You said: hello"
    with suppress(asyncio.CancelledError):
        await stage.stop()


@proves("channels.packages")
def test_a_channel_of_a_package_is_served_by_one_process_of_several(nova: Nova, tmp_path: Path) -> None:
    copy_into(PACKAGE, tmp_path / "packages")
    folder = tmp_path / "desk"
    environment = {
        **os.environ,
        **nova.env,
        "PYTHONPATH": f"{tmp_path / 'packages'}:{ROOT}",
        "DESK_FOLDER": str(folder),
    }
    command = [sys.executable, "-m", "nova_workers.channels", "run", "desk", "--allow", "ann"]
    command += ["--name", f"desk-{uuid.uuid4().hex[:8]}"]

    def says_and_gets(number: int) -> None:
        draft = folder / "in" / f"{number}.draft"
        draft.write_text(json.dumps({"conversation": "kitchen", "sender": "ann", "text": f"hello {number}"}))
        draft.rename(draft.with_suffix(".json"))
        wait_for(lambda: f"You said: hello {number}" in answers(), 60, "the answer")

    def answers() -> list[str]:
        return sorted(json.loads(path.read_text())["text"] for path in (folder / "out").glob("*.json"))

    with ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        for number in (1, 2):
            processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            stack.callback(processes[-1].wait)
            stack.callback(processes[-1].kill)
            wait_for((folder / "in").is_dir, 60, "the folder")
            says_and_gets(number)
        # The second one takes over.
        processes[0].terminate()
        says_and_gets(3)
    assert answers() == [f"You said: hello {number}" for number in (1, 2, 3)]
    assert list((folder / "in").iterdir()) == []
