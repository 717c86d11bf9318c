"""What answers the tool calls of a trial."""

from __future__ import annotations

from typing import Any

from nova_workers.contracts.http.datasets import RecordedCall, Redaction
from nova_workers.contracts.http.evaluations import ToolReplay
from nova_workers.contracts.steps import ToolAuthorization, ToolCall
from nova_workers.domain.evaluations.rules.replay import Replay
from nova_workers.domain.evaluations.sql import ReplaySource

_EMAIL = {"to": "ada@example.com"}


def _call(result: str, arguments: dict[str, Any] | None = None, **fields: Any) -> RecordedCall:
    return RecordedCall(tool="send", arguments=arguments or {"a": 1, "b": [2]}, result=result, **fields)


def _replay(*calls: RecordedCall, redact: Redaction | None = None, **tools: Any) -> Replay:
    return Replay(ReplaySource(ToolReplay(**tools), calls, redact or Redaction()))


def _text(answer: ToolAuthorization | None) -> str:
    assert answer is not None
    assert not answer.allowed
    assert answer.result is not None
    return answer.result[0]["text"]


def test_equal_calls_get_their_results_in_order_and_then_the_last_one() -> None:
    replay = _replay(_call("first"), _call("second"), _call("other", {"a": 2}))
    asked = [{"b": [2], "a": 1}] * 3
    assert [_text(replay.decide("send", params)) for params in asked] == ["first", "second", "second"]
    assert _text(replay.decide("send", {"a": 2})) == "other"


def test_calls_of_earlier_attempts_have_had_theirs() -> None:
    replay = _replay(_call("first"), _call("second"))
    call = ToolCall("c1", "send", {"a": 1, "b": [2]}, step=0, sequence=0, status="completed", result=())
    replay.remember([call])
    assert _text(replay.decide("send", call.params)) == "second"


def test_an_error_is_replayed_as_one() -> None:
    answer = _replay(_call("no such person", is_error=True)).decide("send", {"a": 1, "b": [2]})
    assert answer is not None
    assert answer.is_error


def test_arguments_are_compared_as_the_dataset_keeps_them() -> None:
    recorded = _call("sent", {"to": "[email]"})
    assert _text(_replay(recorded, redact=Redaction(emails=True)).decide("send", _EMAIL)) == "sent"
    missing = _replay(recorded).decide("send", _EMAIL)
    assert missing is not None
    assert missing.result is None


def test_other_calls_fail_stand_in_or_run_by_rule() -> None:
    failing = _replay(_call("sent")).decide("send", {})
    assert failing is not None
    assert (failing.allowed, failing.result, failing.if_read_only) == (False, None, False)
    reading = _replay(missing="read_only").decide("send", {})
    assert reading is not None
    assert (reading.allowed, reading.if_read_only) == (False, True)
    assert _text(_replay(stand_ins={"send": "as if"}).decide("send", {})) == "as if"
    live = _replay(_call("sent"), live=("send",))
    assert live.decide("send", {"a": 1, "b": [2]}) is None
    assert live.is_live("send")


def test_without_its_example_no_call_runs() -> None:
    answer = Replay(None).decide("send", {})
    assert answer is not None
    assert not answer.allowed
