"""`nova chat`, in a pipe and on a terminal."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.events import Event, StreamEnd, StreamStart, Waiting
from nova_workers.contracts.http.wire import AgentView
from tests.support.processes.command_line import Nova
from tests.support.processes.terminal import PROMPT, Terminal
from tests.support.servers.api_stub import ApiStub, all_frames, api_stub, run_view, says

pytestmark = pytest.mark.fleet

Script = Callable[..., str]


@pytest.fixture
def terminal(nova: Nova) -> Generator[Terminal]:
    terminal = Terminal(nova, "chat")
    terminal.shows(PROMPT)
    yield terminal
    terminal.close()


def test_each_line_of_a_pipe_is_a_turn_on_one_thread(nova: Nova) -> None:
    done = nova.good("chat", stdin="one\n\ntwo\n")
    assert done.out == "You said: one\nYou said: two\n"
    thread = re.search(r"--thread (thr_\w+)", done.err)
    assert thread is not None
    runs = nova.good("runs", "list", "--thread", thread[1], "--json").json["items"]
    assert len(runs) == 2
    assert nova.good("chat", "--thread", thread[1], stdin="three\n").out == "You said: three\n"


def test_chat_in_json_is_lines_only(nova: Nova) -> None:
    lines = nova.good("chat", "--json", stdin="one\n").lines
    assert lines[0]["type"] == "stream_start"
    assert lines[-1]["text"] == "You said: one"


def test_slash_commands_are_executed(nova: Nova) -> None:
    done = nova.good("chat", stdin="/thread\n/help\n/nonsense\none\n/new\ntwo\n/quit\nthree\n")
    assert done.out == "You said: one\nYou said: two\n"
    assert "none yet" in done.err
    assert "'/nonsense' is not a command" in done.err


def test_a_chat_that_cannot_start_ends_at_once(nova: Nova) -> None:
    assert nova("chat", "--agent", "nobody", stdin="x\n").code == 1
    assert nova("chat", "--thread", "thr_nowhere", stdin="x\n").code == 1
    assert nova("chat", stdin="x\n", NOVA_API_URL="http://127.0.0.1:9").code == 1


def test_a_turn_on_a_terminal_streams_and_ctrl_d_leaves(terminal: Terminal) -> None:
    terminal.type("hello\n")
    terminal.shows("You said: hello")
    terminal.shows("tokens in")
    terminal.shows(PROMPT)
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert "nova chat --thread thr_" in terminal.screen


def test_a_paste_is_one_message_and_alt_enter_begins_a_line(terminal: Terminal) -> None:
    terminal.paste("one\r/two")
    terminal.type("\x1b\nthree\n")
    terminal.shows("You said: one /two three")
    terminal.shows(PROMPT)


def test_a_line_that_begins_with_a_slash_can_be_sent(nova: Nova) -> None:
    done = nova.good("chat", stdin="//etc/hosts\n/say /help me\n")
    assert done.out == "You said: /etc/hosts\nYou said: /help me\n"


def test_ctrl_c_cancels_the_turn_and_stays_in_the_chat(terminal: Terminal, script: Script) -> None:
    # What is typed is shown too: only the answer has the letter.
    terminal.type(script({"say": "Working on it."}, {"sleep_s": 60}).replace("Working", "W\\u006frking") + "\n")
    terminal.shows("Working on it.")
    terminal.interrupt()
    terminal.shows("canceled")
    terminal.shows(PROMPT)
    terminal.type("still there\n")
    terminal.shows("You said: still there")
    terminal.shows(PROMPT)
    terminal.type("/quit\n")
    assert terminal.ended() == 0


def test_ctrl_c_at_the_prompt_drops_the_line_and_stays(terminal: Terminal) -> None:
    terminal.interrupt()
    terminal.shows("Ctrl-D leaves")
    terminal.shows(PROMPT)
    terminal.type("hello\n")
    terminal.shows("You said: hello")
    terminal.shows(PROMPT)
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_line_typed_while_a_turn_runs_joins_it(terminal: Terminal, script: Script) -> None:
    work = [{"tool": {"name": "work", "sleep_s": 0.3}} for _ in range(8)]
    terminal.type(script(*work, {"say": "finished"}) + "\n")
    terminal.shows("✓ work")
    terminal.type("by the way\n")
    terminal.shows("joined this turn")
    terminal.shows("(steered: by the way)")
    terminal.shows("finished")
    terminal.shows(PROMPT)


NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANSWERS = "/v1/runs/run_1/answers"


async def _asking_server(server: ApiStub) -> None:
    """Let the server answer like a fleet whose run asks for permission, and ends once it is answered."""
    start = StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova")
    asks: list[Event] = [start, Waiting(kind="approval", question="Bash: rm -r build")]
    ends: list[Event] = [start, StreamEnd(run_id="run_1", final=True, status="succeeded", text="Done.")]

    async def events(_: Request) -> Response:
        async def send() -> AsyncGenerator[str]:
            for part in all_frames(asks):
                yield part
            await server.until_asked("POST", ANSWERS)
            for part in all_frames(ends, attempt=2):
                yield part

        return StreamingResponse(send(), media_type="text/event-stream")

    agent = AgentView(
        id="nova", version=1, spec=AgentSpec(name="Nova"), created_by="seed", created_at=NOW, updated_at=NOW
    )
    server.on("GET", "/v1/agents/nova", says(agent))
    server.on("POST", "/v1/runs", says(run_view(), 202))
    server.on("GET", "/v1/runs/run_1/events", events)
    server.on("POST", ANSWERS, says(run_view()))


@pytest.mark.parametrize(("typed", "approve"), [("y", True), ("No", False)])
async def test_a_call_is_permitted_or_refused_by_an_explicit_answer_only(
    tmp_path: Path, typed: str, approve: bool
) -> None:
    async with api_stub() as server:
        await _asking_server(server)
        nova = Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": server.url, "NOVA_API_KEY": "k", "NO_COLOR": "1"})
        terminal = Terminal(nova, "chat")

        def talk() -> None:
            terminal.shows(PROMPT)
            terminal.type("Tidy up\n")
            terminal.shows("asks: Bash: rm -r build [yes | no]")
            terminal.shows("type y to permit it, n to refuse it")
            terminal.type("only the logs\n")
            terminal.shows("'only the logs' is neither yes nor no, and was not sent")
            terminal.shows("asks: Bash: rm -r build [yes | no]")
            assert not server.asked("POST", ANSWERS)
            terminal.type(f"{typed}\n")
            terminal.shows("Done.")

        try:
            await asyncio.to_thread(talk)
        finally:
            terminal.close()
        [body] = [body for method, path, _, body in server.requests if (method, path) == ("POST", ANSWERS)]
        assert json.loads(body)["approve"] is approve
