"""The commands on a real fleet."""

import asyncio
import csv
import io
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from nova_workers.cli import command
from nova_workers.cli.terminal.output import Output
from nova_workers.contracts.http.scopes import Scope
from tests.requirements import proves
from tests.support.harness.api_proxy import api_proxy
from tests.support.processes.command_line import Nova, wait_for
from tests.support.processes.fleet import Fleet
from tests.support.processes.terminal import Terminal

pytestmark = pytest.mark.fleet

Script = Callable[..., str]
SLOW = {"say": "one two three", "tokens_per_s": 5}


def _run(nova: Nova, run_id: str) -> Any:
    return nova.good("runs", "show", run_id, "--json").json


def _ended(nova: Nova, run_id: str) -> Any:
    def look() -> Any:
        run = _run(nova, run_id)
        return run if run["finished_at"] else None

    return wait_for(look, what=f"the end of {run_id}")


def test_send_writes_the_answer_to_stdout_and_its_cost_to_stderr(nova: Nova) -> None:
    done = nova.good("send", "hello")
    assert done.out == "You said: hello\n"
    assert "tokens in" in done.err
    assert "run_" in done.err
    assert "thread thr_" in done.err


def test_a_message_to_an_ephemeral_thread(nova: Nova) -> None:
    run = nova.good("send", "hello", "--ephemeral", "--no-wait", "--json").json
    assert nova.good("threads", "show", run["thread_id"], "--json").json["thread"]["ephemeral"] is True
    assert run["thread_id"] not in nova.good("threads", "list", "--json").out
    assert "ephemeral" in nova("send", "hello", "--ephemeral", "--thread", run["thread_id"]).err


def test_the_state_of_a_thread_is_shown_and_set(nova: Nova) -> None:
    thread = nova.good("send", "hello", "--no-wait", "--json").json["thread_id"]
    assert nova.good("threads", "state", "get", thread, "--json").json["version"] == 0
    nova.good("threads", "state", "set", thread, '{"a": 1, "b": 2}')
    merged = nova.good("threads", "state", "set", thread, '{"a": null}', "--merge", "--version", "1")
    assert (json.loads(merged.out), merged.err.strip()) == ({"b": 2}, "version 2")
    assert "has version 2, not 1" in nova("threads", "state", "set", thread, "{}", "--version", "1").err
    assert "JSON object" in nova("threads", "state", "set", thread, "[]").err


def test_send_streams_tokens_during_the_run(nova: Nova, script: Script) -> None:
    with nova.child("send", script(SLOW, {"sleep_s": 20}, {"say": "end"})) as child:
        child.reads("one two")
        [run] = nova.good("runs", "list", "--status", "running", "--json").json["items"]
        child.interrupt()
        assert child.done().code == 130
    assert _ended(nova, run["id"])["status"] == "canceled"


def test_ctrl_c_cancels_the_run_and_keeps_its_partial_text(nova: Nova, script: Script) -> None:
    with nova.child("send", script({"say": "partial "}, {"sleep_s": 60}), "--json") as child:
        child.reads('"token"')
        child.interrupt()
        done = child.done()
    assert done.code == 130
    accepted, *_, end = done.lines
    assert end["type"] == "stream_end"
    assert end["status"] == "canceled"
    run = _ended(nova, accepted["run"]["id"])
    assert run["status"] == "canceled"
    assert run["text"].startswith("partial")


def test_providers_that_rest_are_listed_and_cleared(nova: Nova) -> None:
    assert nova.good("fleet", "providers", "--json").json == {"rests": [], "redis_answers": True}
    assert "no key rests" in nova.good("fleet", "providers").err
    assert "nothing to clear" in nova.good("fleet", "providers", "--clear", "anthropic").err
    assert "--clear" in nova("fleet", "providers", "anthropic").err


def test_ctrl_c_withdraws_a_queued_run(nova: Nova) -> None:
    nova.good("fleet", "pause", "--reason", "test")
    try:
        with nova.child("send", "never run", "--json") as child:
            child.reads("accepted")
            child.interrupt()
            done = child.done()
    finally:
        nova.good("fleet", "resume")
    assert done.code == 130
    assert done.lines[-1]["status"] == "canceled"


def test_a_failed_run_prints_its_error_and_exits_with_1(nova: Nova, script: Script) -> None:
    message = script({"say": "so far"}, {"error": {"kind": "auth_failure", "message": "no key"}})
    done = nova("send", message)
    assert done.code == 1
    assert done.out == "so far\n"
    assert "✗ auth_failure: no key" in done.err
    assert "failed" in done.err.splitlines()[-2]


def test_send_shows_tool_lines_with_what_they_did(nova: Nova, script: Script) -> None:
    tool = {"tool": {"name": "look_up", "input": {"q": "tea"}, "result": "green"}}
    done = nova.good("send", script({"say": "Looking."}, tool, {"say": "Green tea."}))
    assert done.out == "Looking.\nGreen tea.\n"
    assert "✓ look_up" in done.err


def test_send_with_json_writes_one_event_a_line(nova: Nova) -> None:
    lines = nova.good("send", "hi", "--json").lines
    assert lines[0]["type"] == "accepted"
    assert lines[0]["run"]["status"] == "queued"
    assert lines[1]["type"] == "stream_start"
    assert lines[-1]["type"] == "stream_end"
    assert lines[-1]["final"] is True
    assert lines[-1]["text"] == "You said: hi"
    ids = [tuple(map(int, line["id"].split("-"))) for line in lines[1:]]
    assert ids == sorted(set(ids))


def test_send_and_wait_writes_the_whole_answer_or_the_run(nova: Nova) -> None:
    assert nova.good("send", "hi", "--wait").out == "You said: hi\n"
    run = nova.good("send", "hi", "--wait", "--json").json
    assert run["status"] == "succeeded"
    assert run["usage"]["output_tokens"] > 0


def test_send_without_waiting_writes_the_runs_id(nova: Nova) -> None:
    sent = nova.good("send", "hi", "--no-wait")
    assert sent.err.startswith("queued; thread thr_")
    run_id = sent.out.strip()
    assert _ended(nova, run_id)["text"] == "You said: hi"
    assert nova.good("send", "hi", "--no-wait", "--json").json["status"] == "queued"


def test_send_with_a_start_prints_it_and_does_not_wait(nova: Nova) -> None:
    sent = nova.good("send", "hi", "--at", "2026-01-01T00:00:00Z")
    assert _ended(nova, sent.out.strip())["text"] == "You said: hi"
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    sent = nova.good("send", "hi", "--at", later)
    assert sent.err.startswith("starts at ")
    run_id = sent.out.strip()
    assert nova.good("runs", "show", run_id, "--json").json["status"] == "scheduled"
    nova.good("runs", "withdraw", run_id)
    assert nova("send", "hi", "--at", "2030-01-01").code != 0


def test_send_reads_stdin_and_carries_every_option(nova: Nova) -> None:
    options = ("--model", "haiku", "--queue", "background", "--max-turns", "7", "--metadata", "ticket=42")
    options = (*options, "--priority", "-7")
    run = nova.good("send", "-", *options, "--wait", "--json", stdin="from a pipe — ü\n").json
    assert run["text"] == "You said: from a pipe — ü\n"
    assert (run["model"], run["queue"], run["max_turns"], run["metadata"]) == ("haiku", "background", 7, {"ticket": 42})
    assert run["priority"] == -7


def test_send_continues_a_thread(nova: Nova) -> None:
    first = nova.good("send", "one", "--wait", "--json").json
    second = nova.good("send", "two", "--thread", first["thread_id"], "--wait", "--json").json
    assert second["thread_id"] == first["thread_id"]
    shown = nova.good("threads", "show", first["thread_id"])
    assert [line for line in shown.out.splitlines() if line in ("one", "two", "You said: one", "You said: two")] == [
        "one",
        "You said: one",
        "two",
        "You said: two",
    ]


def test_the_same_idempotency_key_returns_the_first_run(nova: Nova) -> None:
    arguments = ("send", "once", "--no-wait", "--json", "--idempotency-key", "k1")
    assert nova.good(*arguments).json["id"] == nova.good(*arguments).json["id"]
    refused = nova("send", "other", "--no-wait", "--idempotency-key", "k1")
    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1


def test_a_busy_thread_refuses_with_reject(nova: Nova, script: Script) -> None:
    busy = nova.good("send", script({"sleep_s": 60}), "--no-wait", "--json").json
    refused = nova("send", "hi", "--thread", busy["thread_id"], "--on-busy", "reject")
    assert refused.code == 1
    assert busy["id"] in refused.err
    nova.good("runs", "cancel", busy["id"])


def test_a_message_that_joins_a_turn_is_answered_there(nova: Nova, script: Script) -> None:
    steps = [{"tool": {"name": "work", "sleep_s": 0.3}} for _ in range(8)]
    busy = nova.good("send", script({"say": "begun"}, *steps, {"say": "finished"}), "--no-wait", "--json").json
    wait_for(lambda: _run(nova, busy["id"])["status"] == "running")
    done = nova.good("send", "and this", "--thread", busy["thread_id"], "--on-busy", "steer")
    assert "joined this turn" in done.err
    assert "and this" in done.out
    assert "finished" in done.out
    assert "begun" not in done.out


def test_a_stream_continues_after_a_restart_of_the_api(nova: Nova, fleet: Fleet, script: Script) -> None:
    with nova.child("send", script({"say": "before "}, {"sleep_s": 4}, {"say": "after"})) as child:
        child.reads("before")
        assert fleet.api is not None
        fleet.api.kill()
        assert nova("runs", "list").code == 1
        fleet.start_api_process()
        wait_for(lambda: nova("runs", "list").code == 0, 120, "the API to come back")
        done = child.done(60)
    assert done.code == 0, done
    assert done.out == "before after\n"


def test_tail_shows_the_duration_of_the_run_and_not_of_watching(nova: Nova, script: Script) -> None:
    run_id = nova.good("send", script({"sleep_s": 1.2}, {"say": "slept"}), "--wait", "--json").json["id"]
    took_s = float(nova.good("runs", "tail", run_id).err.split(" s ")[0])
    assert took_s >= 1.2
    assert f"{took_s} s" in nova.good("runs", "show", run_id).out


@pytest.mark.parametrize("kind", ["keys", "runs", "threads", "tasks", "triggers", "agents"])
def test_on_a_small_terminal_every_list_shows_its_ids_whole(
    nova: Nova, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    if kind == "tasks":
        nova.good("tasks", "create", "A title that is far longer than what is left of a line " * 3)
    if kind == "triggers":
        nova.good("triggers", "create", "nova", "Look around. " * 9, "--cron", "30 9 * * mon-fri", "--off")
    if kind in ("runs", "threads"):
        nova.good("send", "hello there, this is a message of some length, as they are", "--no-wait")
    items = nova.good(kind, "list", "--json").json["items"]
    screen = Screen()

    def on_screen(*, json_mode: bool) -> Output:
        return Output(json_mode=json_mode, stdout=screen, stderr=io.StringIO())

    monkeypatch.setattr(command, "Output", on_screen)
    nova.good(kind, "list", COLUMNS="80")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:]] == [str(item["id"]) for item in items]
    assert {"triggers": "next", "keys": "state", "tasks": "status"}.get(kind, "id") in lines[0].split()


def test_tail_shows_an_ended_run_from_its_start(nova: Nova) -> None:
    run_id = nova.good("send", "hi", "--wait", "--json").json["id"]
    assert nova.good("runs", "tail", run_id).out == "You said: hi\n"
    lines = nova.good("runs", "tail", run_id, "--json").lines
    rest = nova.good("runs", "tail", run_id, "--json", "--after", lines[1]["id"]).lines
    assert rest == lines[2:]
    assert nova.good("runs", "tail", run_id, "--json", "--after", lines[-1]["id"]).out == ""
    assert nova("runs", "tail", run_id, "--after", "nonsense").code == 1


def test_lists_of_runs_are_saved_listed_and_written_as_csv(nova: Nova, tmp_path: Path) -> None:
    run_id = nova.good("send", "größer und länger", "--wait", "--json").json["id"]
    assert nova("runs", "list", "--saved", "Big").code == 1
    saved = nova.good("run-lists", "save", "Big", "--text", "größer", "--period", "day", "--json").json
    assert "text=größer period=day" in nova.good("run-lists").out
    for options in ((), ("--status", "succeeded", "--sort", "cost")):
        listed = nova.good("runs", "list", "--saved", "Big", *options, "--json").json["items"]
        assert [run["id"] for run in listed] == [run_id]
    assert nova.good("runs", "list", "--saved", saved["id"], "--status", "failed", "--json").json["items"] == []
    file = tmp_path / "big.csv"
    nova.good("runs", "csv", "--saved", "Big", "--to", str(file))
    [row] = csv.DictReader(io.StringIO(file.read_text("utf-8"), newline=""))
    assert (row["id"], row["message"]) == (run_id, "größer und länger")
    assert "exists" in nova("runs", "csv", "--saved", "Big", "--to", str(file)).err
    nova.good("run-lists", "delete", "Big")
    assert "no list" in nova("runs", "csv", "--saved", "Big").err


def test_queued_runs_are_edited_withdrawn_and_canceled(nova: Nova) -> None:
    nova.good("fleet", "pause")
    try:
        ids = [nova.good("send", f"m{at}", "--no-wait").out.strip() for at in range(4)]
        assert "m9" in nova.good("runs", "edit", ids[0], "m9").out
        assert nova.good("runs", "withdraw", ids[1], "--json").json == {"withdrawn": [ids[1]]}
        assert nova.good("runs", "cancel", ids[2], ids[3], "--json").json == {"canceled": 2, "requested": 0}
        refused = nova("runs", "edit", ids[3], "late")
        assert refused.code == 1
        assert ids[3] in refused.err
        assert "why" in nova.good("runs", "show", ids[0]).out
    finally:
        nova.good("fleet", "resume")
    assert _ended(nova, ids[0])["text"] == "You said: m9"
    assert _run(nova, ids[1])["status"] == "canceled"


def test_all_runs_are_canceled_only_with_the_option(nova: Nova, script: Script) -> None:
    running = nova.good("send", script({"sleep_s": 60}), "--no-wait").out.strip()
    wait_for(lambda: _run(nova, running)["status"] == "running")
    assert "--all" in nova("runs", "cancel").err
    shown = nova.good("runs", "cancel", "--all").out
    # Other tests may have runs on this fleet.
    assert re.search(r"queued or waiting; [1-9]\d* running, which stop in a moment", shown)
    assert _ended(nova, running)["status"] == "canceled"


def test_agents_are_made_changed_rolled_back_and_deleted(nova: Nova, tmp_path: Path) -> None:
    (tmp_path / "identity.md").write_text("You are terse.")
    made = nova.good(
        *("agents", "create", "terse", "--name", "Terse", "--identity", f"@{tmp_path}/identity.md"),
        *("--engine", "scripted", "--capability", "memory=memory_list", "--trust", "sandbox", "--json"),
    ).json
    assert made["spec"]["identity"] == "You are terse."
    assert made["spec"]["capabilities"]["memory"]["tools"] == ["memory_list"]
    edited = nova.good("agents", "edit", "terse", "--model", "opus", "--json").json
    assert (edited["version"], edited["spec"]["model"], edited["spec"]["identity"]) == (2, "opus", "You are terse.")
    assert [view["version"] for view in nova.good("agents", "versions", "terse", "--json").json["items"]] == [2, 1]
    back = nova.good("agents", "rollback", "terse", "1", "--json").json
    assert (back["version"], back["spec"]["model"]) == (3, None)
    assert "terse" in nova.good("agents", "list").out
    assert nova.good("send", "hi", "--agent", "terse").out == "You said: hi\n"
    nova.good("agents", "delete", "terse")
    assert nova("agents", "show", "terse").code == 1


def test_a_version_that_is_not_current_is_rolled_out_advanced_and_stopped(nova: Nova) -> None:
    nova.good("agents", "create", "rolled", "--name", "Rolled")
    saved = nova.good("agents", "edit", "rolled", "--model", "other", "--no-release", "--json").json
    assert saved["version"] == 2
    assert nova.good("agents", "show", "rolled", "--json").json["version"] == 1
    steps = ("--step", "10%", "--step", "100%:90m:approval")
    options = (*steps, "--guardrail", "cost:0.5", "--guardrail", "failure", "--metadata", "channel=web")
    shadowed = ("--shadow", "10%:5", "--json")
    begun = nova.good("rollout", "start", "rolled", "--version", "2", *options, *shadowed).json
    assert [(step["percent"], step["hours"], step["approval"]) for step in begun["steps"]] == [
        (10, None, False),
        (100, 1.5, True),
    ]
    assert {each["measure"]: each["tolerance"] for each in begun["guardrails"]} == {"cost": 0.5, "failure": 0}
    assert begun["metadata"] == {"channel": "web"}
    assert (begun["shadow"]["percent"], begun["shadow"]["budget_usd"]) == (10, 5)
    assert "write a share and dollars" in nova("rollout", "start", "rolled", "--version", "2", "--shadow", "10%").err
    assert f"nova evals show {begun['shadow']['evaluation']}" in nova.good("rollout", "status", "rolled").out
    assert "'ten' is no step" in nova("rollout", "start", "rolled", "--version", "2", "--step", "ten").err
    assert "is being rolled out" in nova("agents", "edit", "rolled", "--model", "third").err
    assert nova.good("rollout", "advance", "rolled", "--json").json["step"] == 1
    assert "2 of 2: 100 %" in nova.good("rollout", "status", "rolled").out
    nova.good("rollout", "stop", "rolled", "--reason", "Too curt.")
    assert "Too curt." in nova.good("rollout", "list", "rolled").out


def test_live_runs_of_an_agent_are_sampled_until_that_is_stopped(nova: Nova) -> None:
    options = ("--percent", "5", "--rubric", "Is it polite?", "--budget", "1", "--model", "haiku", "--json")
    begun = nova.good("sampling", "set", "nova", *options).json
    assert (begun["percent"], begun["judge"]["model"], begun["periods"]) == (5, "haiku", [])
    assert "5 % of the runs that succeed" in nova.good("sampling", "show", "nova").out
    nova.good("sampling", "stop", "nova")
    assert nova("sampling", "show", "nova").code == 1


def test_an_agent_is_created_from_the_output_of_show(nova: Nova) -> None:
    shown = nova.good("agents", "show", "nova", "--json").out
    copy = nova.good("agents", "create", "copy", "-f", "-", "--json", stdin=shown).json
    assert copy["spec"] == json.loads(shown)["spec"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "shown"),
    [
        (("agents", "create", "Bad Id", "--name", "x"), "", "id:"),
        (("agents", "create", "x", "-f", "-"), "{", "not JSON"),
        (("agents", "create", "x", "-f", "-"), "[]", "not a JSON object"),
        (("agents", "create", "x", "-f", "/nowhere/x.json"), "", "cannot be read"),
        (
            ("agents", "create", "x", "-f", "-"),
            '{"name": "x", "modle": "y"}',
            "stdin: modle: there is no such field; did you mean",
        ),
        (("agents", "create", "Bad Id", "--name", "x"), "", "use small letters, digits and hyphens"),
        (("agents", "create", "x", "-f", "-"), '{"name": "x", "directories": ["~/a"]}', "~ is not expanded"),
        (("agents", "edit", "nova"), "", "Nothing to change"),
        (("send", "  "), "", "empty"),
        (("send", "-"), "", "empty"),
        (("keys", "create", "x", "--scope", "everything"), "", "scopes"),
        (("runs", "show", "run_nowhere"), "", "run_nowhere"),
        (("threads", "show", "thr_nowhere"), "", "thr_nowhere"),
        (("send", "x", "--agent", "nobody"), "", "nobody"),
        (("send", "x", "--metadata", "novalue"), "", "NAME=VALUE"),
    ],
)
def test_a_failure_is_reported_in_one_line(nova: Nova, arguments: tuple[str, ...], stdin: str, shown: str) -> None:
    done = nova(*arguments, stdin=stdin)
    assert done.code == 1
    assert shown in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err


def test_threads_are_renamed_marked_forked_and_deleted(nova: Nova) -> None:
    thread = nova.good("send", "hi", "--wait", "--json").json["thread_id"]
    assert nova.good("threads", "rename", thread, "Tea", "--label", "tea", "--json").json["title"] == "Tea"
    assert nova.good("threads", "list", "--label", "tea", "--json").json["items"][0]["id"] == thread
    for mark, filters in (("pin", ("--pinned",)), ("archive", ("--archived", "--mine"))):
        nova.good("threads", mark, thread)
        marked = nova.good("threads", "list", *filters, "--json").json["items"]
        assert [each["id"] for each in marked] == [thread]
        nova.good("threads", f"un{mark}", thread)
        assert nova.good("threads", "list", *filters, "--json").json["items"] == []
    fork = nova.good("threads", "fork", thread, "--title", "Coffee", "--json").json
    assert fork["forked_from_thread_id"] == thread
    shown = nova.good("threads", "show", fork["id"], "--json").json
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]
    assert nova.good("threads", "restore", fork["id"]).out == "Nothing was left out.\n"
    assert f"Agent nova, conversation {thread}, begun " in nova.good("threads", "export", thread).out
    nova.good("threads", "delete", thread, fork["id"])
    gone = nova("threads", "show", thread)
    assert gone.code == 1
    assert thread in gone.err


@proves("threads.imported")
def test_a_conversation_is_imported_from_a_file_and_continued(nova: Nova, tmp_path: Path) -> None:
    lines = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "In the attic."}]
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    made = nova.good("threads", "import", str(file), "--title", "Attic", "--json").json
    assert (made["title"], made["turn_count"]) == ("Attic", 1)
    whole = tmp_path / "talk.json"
    whole.write_text(json.dumps({"messages": lines, "agent_id": "nova"}))
    key = ("--idempotency-key", "import-1")
    again = [nova.good("threads", "import", str(whole), *key, "--json").json["id"] for _ in range(2)]
    assert again[0] == again[1]
    piped = nova.good("threads", "import", "-", "--label", "piped", "--json", stdin=json.dumps(lines)).json
    assert piped["label"] == "piped"
    nova.good("send", "Thanks", "--thread", made["id"], "--wait")
    assert "In the attic." in nova.good("threads", "show", made["id"]).out
    file.write_text('{"role": "user", "content": "x"}\n{"role": "system", "content": "x"}\n')
    refused = nova("threads", "import", str(file))
    assert refused.code == 1
    assert "messages.1.role" in refused.err
    file.write_text('{"role": "user", "content": "x"}\nnot JSON\n')
    assert "Line 2" in nova("threads", "import", str(file)).err


def test_a_key_is_shown_once_and_ends_when_revoked(nova: Nova, tmp_path: Path) -> None:
    made = nova.good("keys", "create", "ci", "--scope", "runs", "--days", "1", "--json").json
    assert made["scopes"] == ["runs"]
    assert nova.good("threads", "list", NOVA_API_KEY=made["key"]).code == 0
    described = nova.good("keys", "create", "--help").out
    for scope in get_args(Scope):
        assert scope in described
    current = nova.good("keys", "current", NOVA_API_KEY=made["key"]).out
    assert made["id"] in current
    assert "runs" in current
    denied = nova("keys", "list", NOVA_API_KEY=made["key"])
    assert denied.code == 1
    assert "'keys'" in denied.err
    listed = nova.good("keys", "list")
    assert made["id"] in listed.out
    assert made["key"] not in listed.out
    role = nova.good("keys", "create", "ann", "--role", "viewer", "--network", "127.0.0.1", "--json").json
    assert (role["role"], role["networks"]) == ("viewer", ["127.0.0.1/32"])
    successor = nova.good("keys", "rotate", role["id"], "--overlap", "30m").out.strip()
    assert "viewer" in nova.good("keys", "current", NOVA_API_KEY=successor).out
    assert "No sessions." in nova.good("keys", "sessions").err
    assert "'1 hour' is no time" in nova("keys", "rotate", role["id"], "--overlap", "1 hour").err
    nova.good("keys", "revoke", made["id"])
    revoked = nova.good("audit", "--kind", "key", "--target", made["id"], "--days", "1").out.splitlines()[1:]
    assert [("key.revoked" in line, "key.created" in line) for line in revoked] == [(True, False), (False, True)]
    assert [("Key revoked" in line, "Key created" in line) for line in revoked] == [(True, False), (False, True)]
    assert all(made["id"] in line and "127.0.0.1" in line for line in revoked)
    verified = json.loads(nova.good("audit", "verify", "--json").out)
    assert (verified["problem"], verified["records"]) == (None, verified["seq"])
    kept = f"{verified['seq']}:{verified['hash']}"
    nova.good("audit", "verify", "--head", kept)
    forged = nova("audit", "verify", "--head", f"1:{64 * 'a'}")
    assert (forged.code, "Record 1 is not the one whose hash was kept" in forged.err) == (1, True)
    assert nova("audit", "verify", "--head", "1").code == 1
    file = tmp_path / "audit.ndjson"
    assert "2 records" in nova.good("audit", "--target", made["id"], "--export", str(file)).err
    assert [json.loads(line)["action"] for line in file.read_text().splitlines()] == ["key.created", "key.revoked"]
    again = nova.good("audit", "--target", made["id"], "--export", "-").out
    # Beat may seal the records between the two.
    seal = {"seq": None, "hash": None}
    assert [json.loads(line) | seal for line in again.splitlines()] == [
        json.loads(line) | seal for line in file.read_text().splitlines()
    ]
    assert "exists" in nova("audit", "--export", str(file)).err
    wait_for(lambda: nova("threads", "list", NOVA_API_KEY=made["key"]).code == 1, what="the key to end")


def test_lists_page_by_cursor(nova: Nova) -> None:
    for _ in range(4):
        nova.good("send", "x", "--no-wait")
    first = nova.good("runs", "list", "-n", "2", "--json").json
    second = nova.good("runs", "list", "-n", "2", "--cursor", first["next_cursor"], "--json").json
    ids = [run["id"] for page in (first, second) for run in page["items"]]
    assert len(set(ids)) == 4
    assert f"more: --cursor {first['next_cursor']}" in nova.good("runs", "list", "-n", "2").err


def test_fleet_status_shows_workers_and_queues(nova: Nova, fleet: Fleet) -> None:
    nova.good("send", "hello")
    view = nova.good("fleet", "status", "--json").json
    assert [worker["pid"] for worker in view["workers"]] == [fleet.workers[0].pid]
    shown = nova.good("fleet", "status").out
    assert "interactive" in shown
    assert f"/{view['workers'][0]['slots']}" in shown
    assert "succeeded in the last hour" in shown


def _paused_agents(fleet: Any) -> list[tuple[str, str]]:
    """Return agents and reasons. A tenant that was ended by another test stays paused."""
    return [(switch["target"], switch["reason"]) for switch in fleet["switches"] if switch["scope"] == "agent"]


def test_a_pause_is_shown_with_its_reason(nova: Nova) -> None:
    paused = nova.good("fleet", "pause", "--agent", "nova", "--reason", "deploy", "--json").json
    try:
        assert _paused_agents(paused) == [("nova", "deploy")]
        assert "deploy" in nova.good("fleet", "status").err
    finally:
        resumed = nova.good("fleet", "resume", "--agent", "nova")
    assert "was not paused" not in resumed.err
    assert _paused_agents(nova.good("fleet", "status", "--json").json) == []
    assert "agent nova was not paused" in nova.good("fleet", "resume", "--agent", "nova").err
    assert "There is no agent 'nope'." in nova("fleet", "resume", "--agent", "nope").err


def test_the_top_is_printed_once_for_pipes_and_scripts(nova: Nova) -> None:
    nova.good("send", "hello")
    shown = nova.good("fleet", "top").out
    assert "last minute" in shown
    assert "interactive" in shown
    assert " used, " in shown
    view = nova.good("fleet", "top", "--once", "--json").json
    assert view["last_minute"]["ended"] >= 1
    assert view["fleet"]["workers"][0]["slots"] > 0


async def test_the_top_is_refreshed_in_place_and_says_when_the_fleet_is_away(nova: Nova, fleet: Fleet) -> None:
    async with AsyncExitStack() as api:
        proxy = await api.enter_async_context(api_proxy(fleet.api_url))
        screen = Terminal(nova, "fleet", "top", "--every", "1", "--api-url", proxy.url)
        try:
            for shown in ("every 1 s", "last minute", "every 1 s"):
                await asyncio.to_thread(screen.shows, shown)
            await api.aclose()
            # The last view stays.
            for shown in ("No fleet answers at", "last minute"):
                await asyncio.to_thread(screen.shows, shown)
        finally:
            screen.close()


def test_no_fleet_is_one_line_that_says_how_to_start_one(nova: Nova) -> None:
    done = nova("send", "hi", NOVA_API_URL="http://127.0.0.1:9")
    assert done.code == 1
    assert done.err == (
        "nova: No fleet answers at http://127.0.0.1:9 (Connection refused). Start one with `nova up`, "
        "or name another with --api-url or NOVA_API_URL.\n"
    )


def test_an_error_about_a_key_names_its_possible_sources(nova: Nova) -> None:
    missing = nova("runs", "list", NOVA_API_KEY="")
    assert missing.code == 1
    assert "--api-key or NOVA_API_KEY" in missing.err
    wrong = nova("runs", "list", NOVA_API_KEY="nova_wrong")
    assert wrong.code == 1
    assert "nova keys create" in wrong.err
