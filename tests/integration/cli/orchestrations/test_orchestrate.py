"""`nova orchestrate` and the commands of orchestrations, on a real fleet."""

from __future__ import annotations

import json

import pytest

from tests.support.harness.trees import call, complete, script, spawn
from tests.support.processes.command_line import Nova

pytestmark = pytest.mark.fleet

TASK = script(
    spawn(call("report_progress", status="half", percent=50), complete("part one"), name="Reader"),
    complete("All is read."),
)


@pytest.fixture
def scripted(nova: Nova) -> str:
    """An agent that plays scripts."""
    nova("agents", "create", "player", "--name", "Player", "--engine", "scripted")
    return "player"


def test_a_task_is_watched_to_its_summary(nova: Nova, scripted: str) -> None:
    done = nova.good("orchestrate", TASK, "--agent", scripted, "--token-budget", "1000000")
    assert done.out == "All is read.\n"
    assert "Reader: half 50%" in done.err
    assert "Reader (worker) COMPLETED: part one" in done.err
    assert "waits for Reader" in done.err
    assert "COMPLETED · 2 agents" in done.err


def test_a_detached_orchestration_is_seen_prompted_and_killed(nova: Nova, scripted: str) -> None:
    task = script(spawn(call("ask_user", question="Which file?"), wait=False, name="Asker"), call("wait_for_message"))
    found = nova.good("orchestrate", task, "--agent", scripted, "--detach", "--json").json["id"]
    assert found in nova.good("orchestrations", "list", "--open").out
    assert nova.good("orchestrations", "show", found, "--json").json["id"] == found
    assert "Master" in nova.good("orchestrations", "tree", found).out
    nova.good("orchestrations", "messages", found)
    early = nova("orchestrations", "continue", found, "More.")
    assert early.code == 1
    assert "Send it a message, or wait for its end." in early.err
    assert "KILLED" in nova.good("orchestrations", "kill", found, "--reason", "enough").out
    assert nova("orchestrations", "tree", found, "--follow").code == 1


def test_events_of_all_agents_are_lines_of_json(nova: Nova, scripted: str) -> None:
    lines = nova.good("orchestrate", TASK, "--agent", scripted, "--json").out.splitlines()
    events = [json.loads(line)["event"]["type"] for line in lines]
    assert events[-1] == "orchestration_end"
    assert {"agent_state", "agent_message", "tool_status", "stream_end"} <= set(events)
