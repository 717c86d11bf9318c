import io
import re
from typing import Any

import pytest

from nova_workers.base.vocabulary import Limit
from nova_workers.cli.talk.follow import why_it_waits
from nova_workers.cli.talk.live import LiveView, cost_line
from nova_workers.cli.terminal.output import Output
from nova_workers.contracts.events import (
    AssistantMessage,
    ContentLeftOut,
    Event,
    Reasoning,
    Restart,
    Steered,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    Thinking,
    Token,
    ToolStatus,
    ToolUseSummary,
    Usage,
    Waiting,
)
from tests.support.servers.api_stub import run_view


class Screen(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def _start(attempt: int = 1) -> StreamStart:
    return StreamStart(run_id="run_1", thread_id="thr_1", attempt=attempt, agent_id="nova")


def _end(status: str = "succeeded", *, text: str | None = None, final: bool = True) -> StreamEnd:
    return StreamEnd(run_id="run_1", final=final, status=status, text=text)


def _tool(status: str, summary: str | None = None, call: str = "c1") -> ToolStatus:
    return ToolStatus.model_validate(
        {"tool_call_id": call, "tool_name": "memory_save", "status": status, "summary": summary}
    )


def _piped(*events: Event, reasoning: bool = False, resumed: bool = False) -> tuple[str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    view = LiveView(Output(json_mode=False, stdout=stdout, stderr=stderr), reasoning=reasoning, resumed=resumed)
    for event in events:
        view.show(event)
    view.finish()
    return stdout.getvalue(), stderr.getvalue()


def test_a_step_that_comes_whole_is_completed_and_one_that_was_shown_is_not_repeated():
    text, notes = _piped(
        _start(),
        Token(text="Part of "),
        AssistantMessage(text="Part of it.", step=0),
        Step(index=0),
        _start(2),
        AssistantMessage(text="Part of it.", step=0),
        Step(index=0),
        Token(text="other"),
        AssistantMessage(text="Whole.", step=1),
        Step(index=1),
        _end(),
    )
    assert text == "Part of it.\nother\nWhole.\n"
    assert "the text since the last step is void" in notes


def test_a_committed_response_that_comes_again_after_a_lost_worker_is_not_shown_twice():
    said = AssistantMessage(text="I will look.")
    begun = (_start(), Token(text="I will "), Token(text="look."), said, _tool("started"))
    again = said.model_copy(update={"step": 0})
    rest = (again, _tool("completed", "found"), Step(index=0), Token(text="Done."), _end(text="Done."))
    text, notes = _piped(*begun, _start(2), _start(3), *rest)
    assert text == "I will look.\nDone.\n"
    assert "void" not in notes


def test_a_committed_response_that_was_shown_in_part_is_completed_by_the_next_attempt():
    text, notes = _piped(_start(), Token(text="I will "), _start(2), AssistantMessage(text="I will look.", step=0))
    assert text == "I will look.\n"
    assert "void" not in notes


@pytest.mark.parametrize("anew", [_start(2), Restart()])
def test_another_response_in_place_of_a_shown_one_is_marked(anew: Event):
    text, notes = _piped(
        *(_start(), Token(text="I will look."), AssistantMessage(text="I will look."), anew, Token(text="Let me look."))
    )
    assert text == "I will look.\nLet me look.\n"
    assert notes.count("comes again") == 1


def test_a_subagent_does_not_change_what_is_shown_of_a_step():
    whole = AssistantMessage(text="I help.", agent="helper")
    text, notes = _piped(
        *(_start(), Token(text="I will look."), Token(text="I help", agent="helper"), _start(2)),
        *(Token(text="I help", agent="helper"), whole, Restart(agent="helper")),
        AssistantMessage(text="I will look.", step=0),
    )
    assert text == "I will look.\n"
    assert "comes again" not in notes


def test_a_view_that_begins_inside_a_step_takes_the_end_of_its_text_as_shown():
    rest = (Token(text="look."), AssistantMessage(text="I will look."), Step(index=0), Token(text="look."))
    text, notes = _piped(*rest, AssistantMessage(text="Now look."), resumed=True)
    assert text == "look.\nlook.\nNow look.\n"
    assert notes.count("void") == 1, "only of the step that the view saw whole"


def test_a_view_that_begins_inside_a_step_has_the_end_of_its_text_also_after_a_lost_worker():
    text, notes = _piped(
        *(Token(text="look."), _start(2), AssistantMessage(text="I will look.", step=0), Step(index=0)), resumed=True
    )
    assert text == "look.\n"
    assert "void" not in notes


@pytest.mark.parametrize(
    "before", [(), (_start(2),), (Token(text="wi"),), (Token(text="k."), _start(2), Token(text="k."))]
)
def test_a_view_that_begins_inside_a_step_shows_its_text_if_only_part_of_it_is_shown(before: tuple[Event, ...]):
    text, _ = _piped(*before, AssistantMessage(text="I will look.", step=0), Step(index=0), resumed=True)
    assert text.endswith("I will look.\n")


def test_the_text_of_a_joined_turn_is_not_shown_twice_either():
    joined = StreamEnd(run_id="run_0", final=True, status="merged", merged_into="run_1")
    said = AssistantMessage(text="Both.", step=1)
    text, _ = _piped(joined, Steered(run_ids=("run_0",)), Token(text="Both."), _start(2), said, Step(index=1), _end())
    assert text == "Both.\n"


def _on_screen(*events: Event) -> str:
    screen = Screen()
    view = LiveView(Output(json_mode=False, stdout=screen, stderr=screen))
    for event in events:
        view.show(event)
    view.finish()
    return screen.getvalue()


def test_tokens_are_written_at_once() -> None:
    stdout = io.StringIO()
    view = LiveView(Output(json_mode=False, stdout=stdout, stderr=io.StringIO()))
    view.show(_start())
    view.show(Token(text="Hel"))
    assert stdout.getvalue() == "Hel"
    view.show(Token(text="lo"))
    assert stdout.getvalue() == "Hello"


def test_in_a_pipe_stdout_has_only_the_answer() -> None:
    out, err = _piped(_start(), Thinking(), Token(text="Hi"), _tool("started"), _tool("completed", "saved"), _end())
    assert out == "Hi\n"
    assert "✓ memory_save · saved" in err
    assert "\x1b" not in out + err


def test_texts_of_two_steps_do_not_run_together() -> None:
    out, _ = _piped(_start(), Token(text="First."), Step(index=0), _tool("completed"), Token(text="Second."), _end())
    assert out == "First.\nSecond.\n"


def test_a_message_that_repeats_its_tokens_is_not_shown_twice() -> None:
    out, _ = _piped(_start(), Token(text="Let me "), Token(text="look."), AssistantMessage(text="Let me look."), _end())
    assert out == "Let me look.\n"


def test_a_replay_without_tokens_shows_the_messages() -> None:
    out, _ = _piped(
        _start(), AssistantMessage(text="One"), Step(index=0), AssistantMessage(text="Two"), _end(text="Two")
    )
    assert out == "One\nTwo\n"


def test_an_end_with_text_that_was_not_streamed_shows_the_text() -> None:
    assert _piped(_start(), _end(text="All of it"))[0] == "All of it\n"


def test_an_end_that_is_not_final_does_not_end_the_view() -> None:
    out, _ = _piped(_start(), Token(text="a"), Step(index=0), _end(final=False, text="a"), _start(2), Token(text="b"))
    assert out == "a\nb\n"


def test_unclosed_text_is_marked_void_when_another_worker_continues() -> None:
    out, err = _piped(_start(), Token(text="half a sent"), _start(2), Token(text="half a sentence"), _end())
    assert "comes again" in err
    assert out == "half a sent\nhalf a sentence\n"


def test_an_interrupted_answer_is_marked_void() -> None:
    out, err = _piped(_start(), Token(text="half a sent"), Restart(), Token(text="A whole one."), _end())
    assert out == "half a sent\nA whole one.\n"
    assert "comes again" in err


def test_an_interrupted_answer_of_a_subagent_is_not_marked() -> None:
    assert "comes again" not in _piped(_start(), Restart(agent="helper"), Token(text="Hi"), _end())[1]


def test_a_new_attempt_after_a_committed_step_only_notes_that_it_continues() -> None:
    _, err = _piped(_start(), Token(text="done"), Step(index=0), _start(2), _end())
    assert "continues" in err
    assert "again" not in err


def test_input_and_result_of_a_tool_are_on_one_line() -> None:
    _, err = _piped(_tool("started", "note 'tea'"), _tool("completed", "saved as mem_1"))
    assert err.splitlines() == ["✓ memory_save · note 'tea' · saved as mem_1"]


def test_a_tool_is_named_once_on_its_line() -> None:
    _, err = _piped(_tool("started", "Memory save"), _tool("completed", "memory_save: ok"))
    assert err == "✓ memory_save · ok\n"


def test_a_summary_that_repeats_the_end_of_a_call_is_not_shown() -> None:
    repeated, other = ToolUseSummary(summary="memory_save: ok"), ToolUseSummary(summary="Saved two notes")
    _, err = _piped(_tool("completed", "memory_save: ok"), repeated, other)
    assert err.splitlines() == ["✓ memory_save · ok", "  Saved two notes"]


def test_parallel_tools_keep_their_own_summaries() -> None:
    _, err = _piped(
        _tool("started", "a", "1"), _tool("started", "b", "2"), _tool("completed", "B", "2"), _tool("failed", "A", "1")
    )
    assert err.splitlines() == ["✓ memory_save · b · B", "✗ memory_save · a · A"]


def test_an_interrupted_tool_is_shown_as_interrupted() -> None:
    assert _piped(_tool("started"), _tool("interrupted"))[1] == "✗ memory_save · interrupted\n"


def test_content_that_was_left_out_is_named() -> None:
    left_out = ContentLeftOut(kind="image", note="[Left out, since the model provider refused it: image. No.]")
    assert _piped(left_out)[1] == "⊘ Left out, since the model provider refused it: image. No.\n"


def test_control_sequences_of_a_model_do_not_reach_a_terminal() -> None:
    shown = _on_screen(Token(text="a\x1b]0;owned\x07b\x1b[2Jc"), _end())
    assert shown.rpartition("\x1b[2K")[2] == "a]0;ownedb[2Jc\n"
    assert not re.search(r"\x1b\]|\x07|\x1b\[2J", shown)


def test_control_sequences_of_a_tool_do_not_reach_a_terminal() -> None:
    assert "\x1b[2J" not in _on_screen(_tool("completed", "x\x1b[2Jy"))


def test_a_pipe_gets_the_answer_unchanged() -> None:
    assert _piped(Token(text="a\x1bb"), _end())[0] == "a\x1bb\n"


def test_the_current_activity_is_wiped_before_the_answer() -> None:
    shown = _on_screen(_start(), Thinking(), Token(text="Hi"), _end())
    assert shown.endswith("\r\x1b[2KHi\n")
    assert shown.count("\n") == 1


def test_nothing_is_redrawn_while_tokens_stream() -> None:
    shown = _on_screen(*(Token(text=word) for word in ("a ", "b ", "c")), Thinking(), _end())
    assert re.sub(r"\r\x1b\[2K(\x1b\[2m… [^\x1b]*\x1b\[0m)?", "", shown) == "a b c\n"


def test_reasoning_is_shown_on_demand_only() -> None:
    assert "because" not in "".join(_piped(Reasoning(text="because"), Token(text="x")))
    assert "because" in _piped(Reasoning(text="because"), Token(text="x"), reasoning=True)[1]


def test_a_failure_is_shown_with_its_kind() -> None:
    _, err = _piped(StreamError(error="no\nkey", kind="auth_failure", retryable=False, partial=False), _end("failed"))
    assert err == "✗ auth_failure: no key\n"


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Waiting(kind="user", question="Tea?", options=("yes", "no")), "asks: Tea? [yes | no | …]"),
        (Waiting(kind="user", question="Tea?", options=("yes", "no"), only_options=True), "asks: Tea? [yes | no]"),
        (Waiting(kind="approval", question="Run 'make'?"), "asks: Run 'make'? [yes | no]"),
        (Waiting(kind="agent", agent_id="expert"), "waits for expert"),
        (Waiting(kind="timer", until="noon"), "waits until noon"),
        (Steered(run_ids=("run_2",)), "1 message joined"),
        (Steered(run_ids=("run_2", "run_3")), "2 messages joined"),
    ],
)
def test_events_of_a_run_are_shown(event: Event, shown: str) -> None:
    assert shown in _piped(event)[1]


@pytest.mark.parametrize(
    ("cost", "shown"), [(0.01234, "$0.0123"), (None, "cost unknown"), (12.345, "$12.35"), (0.0, "$0.0000")]
)
def test_the_last_line_shows_time_tokens_cost_and_the_run(cost: float | None, shown: str) -> None:
    usage = Usage(input_tokens=1000, output_tokens=20, cache_read_tokens=200, cost_usd=cost)
    assert cost_line(usage, seconds=1.25, run_id="run_1") == f"1.2 s · 1,200 tokens in, 20 out · {shown} · run_1"


@pytest.mark.parametrize("limit", ["turns", "tokens", "cost"])
def test_the_bound_that_ended_a_run_is_shown(limit: Limit) -> None:
    end = _end(text="So far").model_copy(update={"limit": limit})
    assert _piped(end) == ("So far\n", f"stopped at its limit of {limit}\n")


def _waits(kind: str, *, answers_here: bool, options: tuple[str, ...] = ()) -> str:
    stderr = io.StringIO()
    view = LiveView(Output(json_mode=False, stdout=io.StringIO(), stderr=stderr), answers_here=answers_here)
    view.show(_start())
    view.show(Waiting(kind=kind, question="May I?", options=options))
    return stderr.getvalue().splitlines()[-1]


def test_a_question_shows_how_to_answer_it_here() -> None:
    assert _waits("approval", answers_here=True) == "  type y to permit it, n to refuse it"
    assert _waits("user", answers_here=True, options=("tea",)) == "  type the answer"
    assert _waits("approval", answers_here=False) == "  answer with `nova runs answer run_1 --approve`"
    assert _waits("user", answers_here=False, options=("tea",)) == "  answer with `nova runs answer run_1 tea`"


def test_a_cost_line_without_a_time_has_none() -> None:
    assert cost_line(None, seconds=None, run_id="run_1") == "run_1"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"waiting_for": "a free worker"}, "waits for a free worker"),
        ({"waiting_for": "the fleet is paused: deploy"}, "the fleet is paused: deploy"),
        ({"position": 2}, "queued behind 2"),
        ({}, "queued"),
    ],
)
def test_the_reason_why_a_run_waits_is_a_sentence(fields: dict[str, Any], shown: str) -> None:
    assert why_it_waits(run_view(**fields)) == shown
