"""A run's stream after the rules for clients: what is void is gone, and what the ledger has is left to it."""

from __future__ import annotations

from nova_workers.console.chat.live_run import LiveRun
from nova_workers.contracts import events as live


def _start(attempt: int = 1) -> live.StreamStart:
    return live.StreamStart(run_id="run_1", thread_id="thr_1", attempt=attempt, agent_id="nova")


def _fed(*events: live.Event) -> LiveRun:
    run = LiveRun("run_1")
    for event in events:
        run.feed(event)
    return run


def test_tokens_and_thinking_add_up() -> None:
    run = _fed(
        _start(), live.Reasoning(text="hm"), live.Reasoning(text="m"), live.Token(text="A"), live.Token(text="B")
    )
    assert (run.thinking, run.text, run.step) == ("hmm", "AB", 0)


def test_a_restart_and_another_attempt_make_the_text_since_the_last_step_void() -> None:
    assert _fed(_start(), live.Token(text="half"), live.Restart(), live.Token(text="whole")).text == "whole"
    again = _fed(_start(), live.Step(index=0), live.Token(text="half"), _start(2), live.Token(text="new"))
    assert (again.text, again.step) == ("new", 1)


def test_a_whole_message_replaces_its_pieces() -> None:
    assert _fed(_start(), live.Token(text="ha"), live.AssistantMessage(text="half")).text == "half"


def test_the_text_of_a_closed_step_that_comes_again_is_left_to_the_ledger() -> None:
    waited = _fed(_start(), live.AssistantMessage(text="Which?"), live.Step(index=0), _start(2))
    waited.feed(live.AssistantMessage(text="Which?", step=0))
    assert waited.text == ""
    waited.feed(live.AssistantMessage(text="Next", step=1))
    assert waited.text == "Next"


def test_a_subagents_text_is_not_the_answer() -> None:
    run = _fed(
        _start(),
        live.Token(text="mine"),
        live.Token(text="its", agent="finder"),
        live.AssistantMessage(text="its", agent="finder"),
        live.Restart(agent="finder"),
    )
    assert (run.text, run.doing) == ("mine", "finder works")


def test_the_ledger_is_asked_when_something_was_committed_and_not_for_each_token() -> None:
    run = LiveRun("run_1")
    assert not run.feed(live.Token(text="x"))
    assert not run.feed(live.Thinking())
    assert run.feed(live.ToolStatus(tool_call_id="c", tool_name="look", status="started", summary="looking"))
    assert not run.feed(live.ToolStatus(tool_call_id="c", tool_name="look", status="running", summary="half"))
    assert run.calls["c"].summary == "half"
    assert run.feed(live.Step(index=0))
    assert not run.calls
    assert run.feed(live.StreamEnd(run_id="run_1", final=True, status="succeeded"))
    assert run.ended


def test_the_end_of_an_attempt_is_not_the_end_of_the_run() -> None:
    assert not _fed(_start(), live.StreamEnd(run_id="run_1", final=False, status="waiting")).ended


def test_what_a_turn_waits_for_or_goes_on_without_is_shown() -> None:
    run = _fed(
        _start(),
        live.ProviderUnavailable(
            provider="anthropic", reason="rate_limit", summary="anthropic is busy", message="429", advice="Wait."
        ),
    )
    assert run.doing == "Waiting: anthropic is busy. Wait."
    assert _fed(_start(), live.OptionLeftOut(option="temperature", note="Without it.")).doing == "Without it."
    assert run.feed(live.ProviderUnavailable(provider="a", reason="down", summary="s", message="m", advice="a"))
