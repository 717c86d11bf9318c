"""Secrets are redacted from what leaves an engine: listener, results, sessions. A pending call gets its values back."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import Outage
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    CompactionRecord,
    DeferredCall,
    EngineCallbacks,
    EngineError,
    EngineEvent,
    EngineResult,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.contracts.steps import ModelRequest, ToolServerAway
from nova_workers.contracts.waits import MAX_OPTION_CHARS, AskAgent, AskApproval, AskUser, Pause, wait_adapter
from nova_workers.domain.runs.rules.turns.redaction import (
    RedactedListener,
    RedactedSessions,
    redact_result,
    restore_open_calls,
)
from nova_workers.domain.runs.sql.resume import Journal
from tests.requirements import proves

VALUE = "tok_123456"
HIDDEN = "[secret:KEY]"


class RecordingListener:
    """Records every call of its callbacks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def callbacks(self) -> EngineCallbacks:
        return EngineCallbacks(
            on_thinking=lambda: self._record("thinking", None),
            on_request=lambda request: self._record("request", request),
            on_assistant_message=lambda text: self._record("message", text),
            on_tool_use=lambda call, summary: self._record("use", (call, summary)),
            on_tool_use_summary=lambda text: self._record("summary", text),
            on_tool_progress=lambda call, summary: self._record("progress", (call, summary)),
            on_event=lambda event: self._record("event", event),
            on_token=lambda text: self._record("token", text),
            on_reasoning=lambda text: self._record("reasoning", text),
            on_restart=lambda: self._record("restart", None),
            on_provider_wait=lambda _, why, __: self._record("outage", why),
            on_option_left_out=lambda _, note: self._record("option", note),
            on_tool_servers=self._servers,
            on_tool_result=self._result,
            on_content_refused=self._refused,
            on_tool_calls=self._calls,
            on_step=self._step,
            take_steering=self._steering,
            authorize_tool=self._authorize,
            subagent=lambda _, name: NestedRecorder(self, name).callbacks(),
        )

    def _record(self, kind: str, what: Any) -> None:
        self.heard.append((kind, what))

    async def _result(self, call: ToolCall, summary: str) -> None:
        self._record("result", (call, summary))

    async def _servers(self, away: tuple[ToolServerAway, ...]) -> None:
        self._record("servers", away)

    async def _refused(self, left_out: tuple[LeftOut, ...]) -> None:
        self._record("refused", left_out)

    async def _calls(self, step: StepRecord) -> None:
        self._record("calls", step)

    async def _step(self, step: StepRecord) -> StepVerdict:
        self._record("step", step)
        return "stop"

    async def _steering(self) -> tuple[Message, ...]:
        return ()

    async def _authorize(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        self._record("authorize", params)
        return ToolAuthorization(allowed=True)

    def text(self, kind: str = "token") -> str:
        return "".join(what for heard, what in self.heard if heard == kind)


class NestedRecorder:
    """Records the callbacks of a subagent."""

    def __init__(self, recorder: RecordingListener, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def callbacks(self) -> EngineCallbacks:
        return EngineCallbacks(on_token=lambda text: self._recorder.heard.append((self._name, text)))


def redacted(**secrets: str) -> tuple[RecordingListener, RedactedListener]:
    recorder = RecordingListener()
    return recorder, RedactedListener(recorder.callbacks(), Redactor(secrets or {"KEY": VALUE}))


def a_call(**changes: Any) -> ToolCall:
    given: dict[str, Any] = {"id": "c1", "tool_name": "send", "params": {"k": VALUE}, "step": 0, "sequence": 0}
    return ToolCall(**{**given, **changes})


def a_step(call: ToolCall) -> StepRecord:
    use = {"type": "tool_use", "id": call.id, "name": call.tool_name, "input": call.params}
    return StepRecord(0, (Message("assistant", (text_block(f"I use {VALUE}"), use)),), (call,), complete=False)


async def test_no_callback_with_content_passes_a_secret() -> None:
    recorder, to = redacted()
    call = a_call(result=(text_block(f"got {VALUE}"),), error=f"no {VALUE}")
    step = a_step(call)
    for name in ("on_assistant_message", "on_tool_use_summary", "on_token", "on_reasoning"):
        getattr(to, name)(f"It is {VALUE}.")
    for name in ("on_tool_use", "on_tool_progress"):
        getattr(to, name)(call, f"Sending {VALUE}")
    to.on_event(EngineEvent("tool_use", {"input": {"k": VALUE}}))
    to.on_request(ModelRequest(0, f"It is {VALUE}.", ({"name": "send", "description": VALUE},), {"user": VALUE}))
    to.on_provider_wait(Outage("anthropic", "down"), f"It says {VALUE}", 1.0)
    to.on_option_left_out("temperature", f"It says {VALUE}")
    await to.on_tool_servers((ToolServerAway("web", f"It says {VALUE}", (f"{VALUE} at line 1",)),))
    await to.on_tool_result(call, f"sent {VALUE}")
    await to.on_content_refused((LeftOut(text_block(f"see {VALUE}"), f"no {VALUE}"),))
    await to.on_tool_calls(step)
    assert await to.on_step(step) == "stop"
    nested = to.subagent("c1", "scout")
    nested.on_token(f"{VALUE} and tok_")
    to.settle()
    told = {kind for kind, _ in recorder.heard}
    methods = {name for name in vars(TurnListener) if not name.startswith("_")}
    quiet = {"on_thinking", "on_restart", "can_restart", "take_steering", "authorize_tool", "confirm_run"}
    # These have names of tools alone.
    quiet |= {"may_offer", "on_provider_call"}
    assert len(told) == len(methods - quiet), "a method without a test"
    assert VALUE not in repr(recorder.heard)
    assert recorder.text("scout") == f"{HIDDEN} and tok_"


async def test_a_message_of_only_redacted_thinking_is_not_empty() -> None:
    recorder, to = redacted()
    thought = {"type": "thinking", "thinking": VALUE, "signature": "s"}
    messages = (Message("assistant", (thought,)), Message("assistant", (thought, text_block("a"))))
    await to.on_step(StepRecord(0, messages))
    assert [message.content for message in recorder.heard[0][1].messages] == [
        (text_block("[left out, since it holds a secret]"),),
        (text_block("a"),),
    ]


async def test_authorization_gets_the_real_arguments() -> None:
    recorder, to = redacted()
    await to.authorize_tool("send", {"k": VALUE})
    assert recorder.heard == [("authorize", {"k": VALUE})]


def test_held_back_text_precedes_the_next_event() -> None:
    recorder, to = redacted()
    to.on_token("tok_")
    to.on_thinking()
    to.on_reasoning("It was tok_1")
    to.on_token("99")
    assert recorder.heard == [
        ("token", "tok_"),
        ("thinking", None),
        ("reasoning", "It was "),
        ("reasoning", "tok_1"),
        ("token", "99"),
    ]


def test_void_text_is_not_held_back() -> None:
    recorder, to = redacted()
    to.on_token("tok_12")
    to.on_restart()
    to.on_token("3456")
    to.settle()
    assert recorder.heard == [("restart", None), ("token", "3456")]


@given(st.lists(st.integers(0, 40), max_size=10))
def test_no_split_of_the_answer_passes_a_secret(cuts: list[int]) -> None:
    recorder, to = redacted()
    whole = f"a {VALUE} b {VALUE}{VALUE[:4]}"
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        to.on_token(whole[start:end])
    to.settle()
    assert recorder.text() == f"a {HIDDEN} b {HIDDEN}{VALUE[:4]}"


@proves("secrets.declared")
async def test_a_value_is_redacted_once_the_model_passes_it_to_a_tool_that_takes_secrets() -> None:
    for name in ("keep_key", "vault__keep_key", "mcp__vault__keep_key"):
        recorder, redactor = RecordingListener(), Redactor({"OTHER": "another"})
        redactor.watch({"keep_key": ("value",)})
        to = RedactedListener(recorder.callbacks(), redactor)
        call = a_call(tool_name=name, params={"name": "KEY", "value": VALUE})
        await to.on_tool_calls(a_step(call))
        to.on_token(f"It is {VALUE}.")
        assert VALUE not in repr(recorder.heard)
        assert recorder.text() == f"It is {HIDDEN}."


async def test_sessions_are_kept_without_secrets() -> None:
    kept: list[NewSession] = []

    class Store:
        async def load(self, session_id: str) -> StoredSession | None:
            return StoredSession((), session_id)

        async def save(self, session: NewSession) -> None:
            kept.append(session)

    sessions = RedactedSessions(Store(), Redactor({"KEY": VALUE}))
    await sessions.save(NewSession("s2", "s1", ({"message": {"content": [VALUE]}},), "f"))
    assert kept == [NewSession("s2", "s1", ({"message": {"content": [HIDDEN]}},), "f")]
    assert await sessions.load("s1") == StoredSession((), "s1")


def test_a_result_has_no_secret_in_any_field() -> None:
    call = a_call(result=(text_block(VALUE),), error=VALUE)
    record = CompactionRecord(VALUE, "t", None, 1, "m", "p", 1, 1, 1, 1, 1, 1, "context_limit")
    result = EngineResult(
        text=VALUE,
        stop_reason="end_turn",
        messages=(Message("assistant", (text_block(VALUE),)),),
        tool_calls=(call,),
        error=EngineError("unknown", VALUE, retryable=True),
        compaction=record,
        output={"key": [VALUE]},
        deferred=(DeferredCall(call, {"kind": "approval", "params": {"k": VALUE}}),),
    )
    clean = redact_result(result, Redactor({"KEY": VALUE}))
    assert VALUE not in repr(clean)
    assert clean.output == {"key": [HIDDEN]}
    assert clean.stop_reason == "end_turn"


def test_a_redacted_wait_request_stays_valid() -> None:
    """Secrets may be as long as a bound, shorter than their placeholder, or words of the form."""
    # A name of 64 characters: its placeholder is longer than the values.
    name = "N" * 64
    redactor = Redactor({name: VALUE, "FORM": "question", "WHO": "expert-1", "KIND": "approval"})
    long = f"{VALUE}{'x' * (MAX_OPTION_CHARS - len(VALUE))}"
    requests = (
        AskUser(question=VALUE * 1_000, options=("no", long), expires_in_s=9, default=long),
        AskUser(question="q", expires_in_s=9, default=VALUE * 1_000),
        AskUser(question="q", expires_in_s=9, escalate_to="expert-1"),
        AskAgent(agent_id="expert-1", message=VALUE * 20_000),
        AskApproval(tool_name="question", params={"k": VALUE}, reason=f"May it? {VALUE}"),
        Pause(until=datetime(2030, 1, 1, tzinfo=UTC)),
    )
    deferred = tuple(DeferredCall(a_call(), request.model_dump(mode="json")) for request in requests)
    clean = redact_result(EngineResult(text="", stop_reason="tool_use", deferred=deferred), redactor).deferred
    assert VALUE not in repr(clean)
    first, _, escalated, asked, approval, pause = (wait_adapter.validate_python(each.request) for each in clean)
    assert isinstance(first, AskUser)
    assert first.default == first.options[1]
    assert (escalated, pause) == (requests[2], requests[5])
    assert isinstance(asked, AskAgent)
    assert asked.agent_id == "expert-1"
    assert isinstance(approval, AskApproval)
    assert (approval.tool_name, approval.params) == ("question", {"k": f"[secret:{name}]"})


def test_pending_calls_get_their_original_arguments() -> None:
    redactor = Redactor()
    redactor.learn("KEY", VALUE, readable=True)
    redactor.learn("SHUT", "shut-away")
    params = {"k": f"Bearer {HIDDEN}", "l": "[secret:SHUT]"}
    waiting, done = a_call(params=params, status="approved"), a_call(id="c2", params=params, result=())
    redactor.watch({"secret_update": ("value",)})
    update = a_call(id="c3", tool_name="secret_update", params={"name": "KEY", "value": HIDDEN})
    uses = tuple(
        {"type": "tool_use", "id": call.id, "name": call.tool_name, "input": call.params}
        for call in (waiting, done, update)
    )
    last = StepRecord(1, (Message("assistant", (text_block(HIDDEN), *uses)),), (waiting, done, update), complete=False)
    first = StepRecord(0, (Message("assistant", (text_block(HIDDEN),)),))
    journal = restore_open_calls(Journal((first, last), 5), redactor)
    whole = {"k": f"Bearer {VALUE}", "l": "[secret:SHUT]"}
    assert journal.steps[0] == first
    assert [call.params for call in journal.steps[1].tool_calls] == [whole, params, update.params]
    assert [block.get("input") for block in journal.steps[1].messages[0].content] == [
        None,
        whole,
        params,
        update.params,
    ]
    assert journal.steps[1].messages[0].content[0] == text_block(HIDDEN)
    complete = Journal((first,), 5)
    assert restore_open_calls(complete, redactor) is complete
    assert restore_open_calls(Journal((last,), 5), Redactor()).steps == (last,)
