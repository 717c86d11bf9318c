"""A tree of agents on a terminal: drawn, asked about, detached from and killed. And where there is no terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import proves
from tests.support.harness.trees import call, complete, script, spawn
from tests.support.processes.command_line import Nova, wait_for
from tests.support.processes.terminal import PROMPT, Terminal

pytestmark = pytest.mark.fleet

PLAYER = "watched"
CAREFUL = "careful"
FILES = {"question": "Which file?", "options": ["parse.py", "lex.py"]}
ASKS = spawn(call("ask_user", **FILES), complete("ok"), name="Asker")
CHOOSES = spawn(call("ask_user", **FILES, only_options=True), complete("ok"), name="Asker")
WATCH = "tests.integration.cli.orchestrations.quick_watch"


@pytest.fixture(autouse=True)
def agents(nova: Nova, tmp_path: Path) -> None:
    """Agents that play scripts; `careful` asks before it remembers something."""
    nova("agents", "create", PLAYER, "--name", "Player", "--engine", "scripted")
    spec = tmp_path / "careful.json"
    rule = {"tool": "*memory_save", "decision": "ask"}
    given = {"name": "Careful", "engine": "scripted", "capabilities": {"memory": {}}}
    spec.write_text(json.dumps({**given, "permissions": {"approvals": [rule]}}))
    nova("agents", "create", CAREFUL, "--file", str(spec))


@contextmanager
def watching(nova: Nova, *arguments: str, **given: Any) -> Generator[Terminal]:
    terminal = Terminal(nova, *arguments, **given)
    try:
        yield terminal
    finally:
        terminal.close()


def started(nova: Nova, *items: dict[str, Any], agent: str = PLAYER) -> str:
    """Start an orchestration, and return its id."""
    return nova.good("orchestrate", script(*items), "--agent", agent, "--detach", "--json").json["id"]


def state(nova: Nova, orchestration: str) -> str:
    return nova.good("orchestrations", "show", orchestration, "--json").json["state"]


def open_waits(nova: Nova, orchestration: str) -> list[dict[str, Any]]:
    tree = nova.good("orchestrations", "tree", orchestration, "--json").json
    return [wait for agent in tree["agents"] for wait in agent["waits"]]


def test_the_tree_is_drawn_as_it_grows_and_stays_with_its_summary(nova: Nova) -> None:
    half, pause = call("report_progress", status="half", percent=50), {"sleep_s": 2}
    task = script(pause, spawn(half, pause, complete("read"), name="Reader"), complete("All is read."))
    with watching(nova, "orchestrate", task, "--agent", PLAYER) as terminal:
        terminal.shows("● Master RUNNING")
        terminal.shows("└── ● Reader worker RUNNING")
        terminal.shows("half 50%")
        terminal.shows("waits for Reader")
        terminal.shows("✓ Master COMPLETED")
        terminal.shows("└── ✓ Reader worker COMPLETED")
        terminal.shows("All is read.")
        terminal.shows("COMPLETED · 2 agents")
        assert terminal.ended() == 0
        assert re.search(r"\d\.\d s · 2 agents · \$", terminal.log), "the time since the start"


def test_no_line_of_a_narrow_terminal_is_wider_than_it(nova: Nova) -> None:
    name = "A name of an agent that is far longer than the terminal is wide"
    task = script(spawn(call("report_progress", status="x" * 200), complete("y" * 200), name=name), complete("done"))
    with watching(nova, "orchestrate", task, "--agent", PLAYER, columns=40) as terminal:
        assert terminal.ended() == 0
        drawn = [line for line in re.split(r"[\r\n]+", terminal.log) if line.startswith(("●", "○", "✓", "└", "├"))]
    assert drawn
    assert max(map(len, drawn)) <= 40


def test_the_first_ctrl_c_detaches_and_the_orchestration_goes_on(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    with watching(nova, "orchestrations", "tree", orchestration, "--follow", stdin=False) as terminal:
        terminal.shows("Asker worker RUNNING")
        terminal.interrupt()
        terminal.shows("detaching; Ctrl-C again within 2 s kills the orchestration")
        terminal.shows(f"Follow it with `nova orchestrations tree {orchestration} --follow`")
        assert terminal.ended() == 130
    assert state(nova, orchestration) == "WAITING_FOR_CHILD"
    nova.good("orchestrations", "kill", orchestration)


def test_a_second_ctrl_c_within_two_seconds_kills_the_orchestration(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    with watching(nova, "orchestrations", "tree", orchestration, "--follow", stdin=False) as terminal:
        terminal.shows("Asker worker RUNNING")
        terminal.interrupt()
        terminal.shows("detaching")
        terminal.interrupt()
        terminal.shows("✗ Master KILLED")
        terminal.shows("✗ killed: ")
        assert terminal.ended() == 130
        assert "Traceback" not in terminal.log
    assert state(nova, orchestration) == "KILLED"


def test_a_silence_is_shown_in_the_drawing_and_once_as_a_line(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    wait_for(lambda: open_waits(nova, orchestration))
    with watching(nova, orchestration, program=WATCH, stdin=False) as terminal:
        terminal.shows(" · no events for 1 s")
    with nova.child(orchestration, program=WATCH) as piped:
        piped.notes("no events for ")
        nova.good("orchestrations", "kill", orchestration)
        assert piped.done().err.partition("KILLED")[0].count("no events for ") == 1


def test_a_reader_that_closes_the_output_is_no_error(nova: Nova) -> None:
    task = script(*(call("report_progress", status="x" * 500) for _ in range(50)), complete("done"))
    with nova.child("orchestrate", task, "--agent", PLAYER, "--json") as child:
        child.reads("agent_state")
        child.stop_reading()
        done = child.done()
    assert done.code == 141
    assert "Traceback" not in done.err
    assert "BrokenPipe" not in done.err


@proves("orchestration.answer-in-place")
def test_a_question_is_answered_in_place_while_the_tree_is_drawn(nova: Nova) -> None:
    with watching(nova, "orchestrate", script(CHOOSES, complete("All done.")), "--agent", PLAYER) as terminal:
        terminal.shows("? Asker (worker) asks: Which file?")
        terminal.shows("1. parse.py")
        terminal.shows("2. lex.py")
        terminal.shows(PROMPT)
        terminal.shows("● Asker worker RUNNING")
        terminal.shows("waits for a person")
        terminal.shows("Asker (worker) · parse.py | lex.py; Ctrl-D answers later>")
        terminal.type("neither\n")
        terminal.shows("'neither' is none of parse.py, lex.py, and was not sent")
        terminal.shows(PROMPT)
        terminal.type("2\n")
        terminal.shows("→ lex.py")
        terminal.shows("✓ Asker worker COMPLETED")
        terminal.shows("All done.")
        assert terminal.ended() == 0


@proves("orchestration.answer-in-place")
def test_calls_are_permitted_refused_or_permitted_for_the_whole_tree(nova: Nova) -> None:
    def saves(*contents: str) -> list[dict[str, Any]]:
        return [call("memory_save", content=content) for content in contents]

    keeper = spawn(*saves("tea", "milk", "cake", "jam"), complete("kept"), name="Keeper")
    with watching(nova, "orchestrate", script(keeper, complete("done")), "--agent", CAREFUL) as terminal:
        for content, typed, noted in (("tea", "y", "yes"), ("milk", "no", "no"), ("cake", "always", "always")):
            terminal.shows("? Keeper (worker) asks for permission to call memory_save")
            terminal.shows(f"content: {content}")
            terminal.shows("yes | no | always; Ctrl-D answers later>")
            terminal.type(f"{typed}\n")
            terminal.shows(f"→ {noted}")
        terminal.shows("✓ Keeper worker COMPLETED")
        assert terminal.ended() == 0
        assert "content: jam" not in terminal.log, "It is permitted from then on."


def test_open_questions_are_asked_one_after_another_unless_answered_elsewhere(nova: Nova) -> None:
    def asker(name: str) -> dict[str, Any]:
        return spawn(call("ask_user", question=f"{name}?"), complete(f"{name} ok"), wait=False, name=name)

    orchestration = started(
        nova, asker("One"), asker("Two"), asker("Three"), *[call("wait_for_message")] * 3, complete("done")
    )
    wait_for(lambda: len(open_waits(nova, orchestration)) == 3)
    with watching(nova, "orchestrations", "tree", orchestration, "--follow") as terminal:
        terminal.shows("asks: One?")
        terminal.shows("One (worker) · 1 of 3 · your answer")
        (first,) = [wait for wait in open_waits(nova, orchestration) if wait["request"]["question"] == "One?"]
        nova.good("runs", "answer", first["run_id"], "elsewhere")
        terminal.shows("it is not open any more")
        terminal.shows("asks: Two?")
        terminal.shows(PROMPT)
        terminal.type("\x04")
        terminal.shows("left open; `nova runs answer run_")
        terminal.shows("asks: Three?")
        terminal.shows(PROMPT)
        terminal.type("here\n")
        terminal.shows("→ here")
        terminal.shows("✓ Three worker COMPLETED")
        terminal.shows("● Two worker RUNNING")
        (left,) = open_waits(nova, orchestration)
        nova.good("runs", "answer", left["run_id"], "later")
        terminal.shows("COMPLETED · 4 agents")
        assert terminal.ended() == 0


def test_ctrl_c_at_a_question_detaches_and_restores_the_terminal(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    with watching(nova, "orchestrations", "tree", orchestration, "--follow") as terminal:
        terminal.shows(PROMPT)
        terminal.type("\x03")
        terminal.shows("detaching")
        terminal.shows("Detached; the orchestration goes on.")
        assert terminal.ended() == 130
        assert terminal.echoes, "The terminal shows what is typed again."
        assert "Traceback" not in terminal.log
    nova.good("orchestrations", "kill", orchestration)


def test_the_end_of_the_orchestration_ends_a_question(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    with watching(nova, "orchestrations", "tree", orchestration, "--follow") as terminal:
        terminal.shows(PROMPT)
        nova.good("orchestrations", "kill", orchestration, "--reason", "enough")
        terminal.shows("KILLED · 2 agents")
        assert terminal.ended() == 1
        assert terminal.echoes


def test_without_a_terminal_the_command_that_answers_is_printed(nova: Nova) -> None:
    orchestration = started(nova, ASKS, complete("done"))
    (wait,) = wait_for(lambda: open_waits(nova, orchestration))
    expected = (
        f"? Asker (worker) asks: Which file? [parse.py, lex.py, …] — answer with `nova runs answer {wait['run_id']}`"
    )
    assert "waits for a person" in nova.good("orchestrations", "tree", orchestration).out
    with watching(nova, "orchestrations", "tree", orchestration, "--follow", stdin=False) as terminal:
        terminal.shows(expected)
    nova.good("runs", "answer", wait["run_id"], "lex.py")
    wait_for(lambda: state(nova, orchestration) == "COMPLETED")
    assert expected in nova.good("orchestrations", "tree", orchestration, "--follow").err


def test_a_chat_on_a_thread_of_an_orchestration_permits_for_the_whole_tree(nova: Nova) -> None:
    orchestration = started(nova, spawn(complete("kept"), name="Keeper"), complete("done"), agent=CAREFUL)
    wait_for(lambda: state(nova, orchestration) == "COMPLETED")
    _, keeper = nova.good("orchestrations", "tree", orchestration, "--json").json["agents"]
    saves = [call("memory_save", content=content) for content in ("tea", "milk")]
    with watching(nova, "chat", "--thread", keeper["thread_id"]) as terminal:
        terminal.shows(PROMPT)
        terminal.type(script(*saves, {"say": "Both are kept."}).replace("Both", "B\\u006fth") + "\n")
        terminal.shows("[yes | no | always]")
        terminal.shows("type y to permit it, n to refuse it, always to permit it to all agents of the orchestration")
        terminal.type("perhaps\n")
        terminal.shows("'perhaps' is none of yes, no and always, and was not sent")
        terminal.type("always\n")
        terminal.shows("Both are kept.")
        assert terminal.log.count("⏸ asks:") == 2, "The second call is permitted by then."
        terminal.shows(PROMPT)
