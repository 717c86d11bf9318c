"""What followers see of one attempt at a run: its live events, and that their text is what the ledger gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Outage
from nova_workers.base.observability.redaction import hide
from nova_workers.contracts import events as live
from nova_workers.contracts.content import JsonObject, storable, text_of
from nova_workers.contracts.engine import StepRecord, ToolAuthorization, ToolCall, TurnListener
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.runs import Claim, Finish, Finished
from nova_workers.contracts.state_changes import state_change
from nova_workers.contracts.steps import ToolServerAway
from nova_workers.contracts.summaries import tool_result_summary
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import HoldDetail, detail_of
from nova_workers.domain.runs.sql.journal import Absorbed
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents
from nova_workers.domain.streams.rules.wire import RunEnding, message_digest
from nova_workers.domain.waits.sql.suspend import NewWait

_log = structlog.get_logger(__name__)

_Status = Literal["started", "running", "completed", "failed", "interrupted"]


class LiveEvents(TurnListener):
    """Emits the live events of one attempt. Nothing here waits or writes to the ledger.

    As a listener it takes what an engine only reports. What the engine waits for is the journal's, which calls the
    other methods here.
    """

    def __init__(
        self, stream: RunEvents, *, publisher: EventPublisher, clock: Clock, on_answer: Callable[[], None]
    ) -> None:
        """Take the attempt's stream, and what is called when the model begins to answer."""
        self.stream = stream
        self.on_answer = on_answer
        self.first_token_at: datetime | None = None
        self._publisher = publisher
        self._clock = clock
        self._options_left_out: set[str] = set()
        self.resume(Journal((), 1))

    def resume(self, journal: Journal) -> None:
        """Continue what earlier attempts published of a turn, of which they committed this."""
        self._told = ToldText(journal)
        self._unannounced = journal.ended
        self._ended = {call.id for step in journal.steps for call in step.tool_calls if call.result is not None}
        self._ended -= {call.id for call in journal.ended}

    def start(self, claim: Claim) -> None:
        """Emit that the attempt begins."""
        self.stream.emit(
            live.StreamStart(
                run_id=claim.run_id,
                thread_id=claim.thread_id,
                attempt=claim.attempt,
                agent_id=claim.agent_id,
                model=claim.model or claim.agent.model,
                label=claim.thread_label,
                target=claim.target,
            )
        )

    def on_thinking(self) -> None:
        """Emit that the turn waits for the model."""
        self.stream.emit(live.Thinking())

    def on_provider_wait(self, outage: Outage, why: str, pause_s: float) -> None:
        """Emit that the turn pauses because of the model provider."""
        until = self._clock.now() + timedelta(seconds=pause_s)
        self.stream.emit(live.ProviderUnavailable.of(detail_of(outage, hide(why)), until, held=False))

    def on_token(self, text: str) -> None:
        """Emit a piece of the answer."""
        if self.first_token_at is None:
            self.first_token_at = self._clock.now()
            self.on_answer()
        # First the event, which refuses what is no text.
        self.stream.emit(live.Token(text=text))
        self._told.add(text)

    def on_reasoning(self, text: str) -> None:
        """Emit a piece of thinking."""
        self.stream.emit(live.Reasoning(text=text))

    def on_restart(self) -> None:
        """Emit that the streamed part of the response is void."""
        self._told.replace()
        self.stream.emit(live.Restart())

    def on_assistant_message(self, text: str) -> None:
        """Emit narration."""
        self._told.replace(text)
        self.stream.emit(live.AssistantMessage(text=text))

    def on_tool_use_summary(self, summary: str) -> None:
        """Emit the summary of a call."""
        self.stream.emit(live.ToolUseSummary(summary=summary))

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Emit that a call begins."""
        self.stream.emit(_status_of(call, summary, "started"))

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Emit the progress of a call."""
        self.stream.emit(_status_of(call, summary, "running"))

    def on_option_left_out(self, option: str, note: str) -> None:
        """Emit and log the note, once."""
        if option not in self._options_left_out:
            self._options_left_out.add(option)
            _log.warning("model.option_left_out", option=option, note=note)
            self.stream.emit(live.OptionLeftOut(option=option, note=note))

    def servers_away(self, away: Iterable[ToolServerAway]) -> None:
        """Emit which tool servers are away."""
        servers = tuple(live.AwayServer(name=each.name, reason=each.reason, output=each.output) for each in away)
        if servers:
            self.stream.emit(live.ToolServersAway(servers=servers))

    def content_left_out(self, left_out: Iterable[LeftOut]) -> None:
        """Emit which blocks later requests omit."""
        for each in left_out:
            self.stream.emit(live.ContentLeftOut(kind=str(each.block.get("type")), note=each.note))

    def void_open_text(self) -> None:
        """Emit that the text of the open step is void, if any was: the turn continues without that response."""
        if self._told:
            self.on_restart()

    def correct_text(self, step: StepRecord | None) -> None:
        """Emit the committed text of the open step, if the stream gave another one. See `ToldText.correction`."""
        if (correction := self._told.correction(step)) is not None:
            self.stream.emit(correction)

    def end_call(self, call: ToolCall, summary: str) -> None:
        """Emit the end of a call."""
        self._ended.add(call.id)
        _emit_end(self.stream, call, summary)

    def end_calls(self, calls: Iterable[ToolCall]) -> None:
        """Emit the ends of calls that the stream has not."""
        for call in calls:
            if call.id not in self._ended:
                self.end_call(call, tool_result_summary(call))

    def end_former_calls(self) -> None:
        """Emit the end of each call that ended outside of this attempt."""
        self.end_calls(self._unannounced)

    def step_committed(self, step: StepRecord, spent: TokenUsage, absorbed: Sequence[Absorbed]) -> None:
        """Emit a step, what the turn has used by it, and the messages that joined, also of another worker's step."""
        self.stream.emit(live.Usage.of(spent))
        self.stream.emit(live.Step(index=step.index))
        self._told.replace()
        if not absorbed:
            return
        self.stream.emit(live.Steered(run_ids=tuple(item.run_id for item in absorbed)))
        for item in absorbed:
            end = live.StreamEnd(run_id=item.run_id, final=True, status="merged", merged_into=self.stream.run_id)
            self._publisher.announce_end(item.run_id, end)

    def tree_changed(self, news: TreeNews) -> None:
        """Announce what a step changed in the run's orchestration."""
        self._publisher.announce_tree(news)

    def requeued(self) -> None:
        """Emit that another attempt continues."""
        self._stop("queued")

    def held(self, detail: HoldDetail, until: datetime | None) -> None:
        """Emit that another attempt continues once the model provider can be used."""
        self.stream.emit(live.ProviderUnavailable.of(detail, until, held=True))
        self._stop("queued")

    def suspended(self, status: str, step: int, spent: TokenUsage, waits: Iterable[NewWait]) -> None:
        """Emit what the run waits for since a step, what it has used by then, and that another attempt continues."""
        self.stream.emit(live.Usage.of(spent))
        if status == "waiting":
            # The response with these calls is committed, so what was streamed of it is valid.
            self.stream.emit(live.Step(index=step))
            for wait in waits:
                self.stream.emit(live.Waiting.of(wait.tool_call_id, wait.request))
        self._stop(status)

    def finished(self, claim: Claim, finish: Finish, finished: Finished) -> None:
        """Emit the committed end of the run."""
        if finish.error is not None:
            self.stream.emit(
                live.StreamError(
                    error=finish.error.message,
                    kind=finish.error.kind,
                    retryable=finish.error.retryable,
                    partial=bool(finish.text),
                )
            )
        end = live.StreamEnd(
            run_id=claim.run_id,
            final=True,
            status=finish.status,
            stop_reason=finish.stop_reason,
            limit=finish.limit,
            text=finish.text,
            usage=live.Usage.of(finished.usage),
        )
        self.stream.end(end, _ending(claim, finish, finished))

    def _stop(self, status: str) -> None:
        self.stream.emit(live.StreamEnd(run_id=self.stream.run_id, final=False, status=status), urgent=True)


class ToldText:
    """The text of the open step as the events of this attempt give it.

    Responses may be committed otherwise than they streamed: cut, corrected, or not at all. Before a step closes, an
    event corrects what followers have.
    """

    def __init__(self, journal: Journal) -> None:
        """Begin with what earlier attempts committed."""
        self._pieces: list[str] = []
        self._closed = journal.steps[-1].index if journal.has_waited else None
        """The open step, if a `step` event of an earlier attempt closed its text."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """Note a piece of the text."""
        self._pieces.append(text)

    def replace(self, text: str = "") -> None:
        """Note that the text is this one now."""
        self._pieces = [text] if text else []

    def correction(self, step: StepRecord | None) -> live.AssistantMessage | live.Restart | None:
        """Return the event that gives followers the committed text of a step; None if they have it.

        Args:
            step: The open step; None if nothing of it is committed.
        """
        said = () if step is None or step.index == self._closed else step.messages
        text = "".join(text_of(message.content) for message in said if message.role == "assistant")
        if text == "".join(self._pieces):
            return None
        self.replace(text)
        step_index = None if step is None else step.index
        return live.AssistantMessage(text=text, step=step_index) if text else live.Restart()


class SubagentEvents(TurnListener):
    """The listener of a nested turn. Its steps are not in the journal; only the call that runs it is."""

    def __init__(self, stream: RunEvents, agent: str, turn: TurnListener) -> None:
        """Keep the run's stream, the subagent's name, and the listener of the turn, which authorizes its calls."""
        self._stream = stream
        self._agent = agent
        self._turn = turn

    def on_assistant_message(self, text: str) -> None:
        """Emit narration."""
        self._stream.emit(live.AssistantMessage(text=text, agent=self._agent))

    def on_token(self, text: str) -> None:
        """Emit a piece of the subagent's answer."""
        self._stream.emit(live.Token(text=text, agent=self._agent))

    def on_reasoning(self, text: str) -> None:
        """Emit a piece of thinking."""
        self._stream.emit(live.Reasoning(text=text, agent=self._agent))

    def on_restart(self) -> None:
        """Emit that the streamed part of the response is void."""
        self._stream.emit(live.Restart(agent=self._agent))

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Emit that a call begins."""
        self._stream.emit(_status_of(call, summary, "started", self._agent))

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Emit the progress of a call."""
        self._stream.emit(_status_of(call, summary, "running", self._agent))

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Emit that a call ended."""
        _emit_end(self._stream, call, summary, self._agent)

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Authorize a call like one of the turn itself."""
        return await self._turn.authorize_tool(tool_name, params)

    def on_provider_call(self, tool_name: str) -> None:
        """Count a call of a tool that the provider runs as one of the turn itself."""
        self._turn.on_provider_call(tool_name)

    async def confirm_run(self) -> None:
        """Confirm the run of the turn."""
        await self._turn.confirm_run()


def _status_of(call: ToolCall, summary: str, status: _Status, agent: str | None = None) -> live.ToolStatus:
    return live.ToolStatus(tool_call_id=call.id, tool_name=call.tool_name, status=status, summary=summary, agent=agent)


def _emit_end(stream: RunEvents, call: ToolCall, summary: str, agent: str | None = None) -> None:
    """Emit the end of a call, and what it changed of the thread's state document."""
    status = call.status if call.status in ("completed", "interrupted") else "failed"
    stream.emit(_status_of(call, summary, status, agent))
    change = state_change(call, agent=agent)
    if change is not None:
        stream.emit(change)


def _ending(claim: Claim, finish: Finish, finished: Finished) -> RunEnding | None:
    """Return the record for those who wait for a plain run; None of another run, which they read."""
    digest = message_digest(claim.content) if finish.status == "succeeded" and finish.output is None else None
    if digest is None or storable(finish.text) != finish.text:
        return None
    return RunEnding(
        message=digest,
        agent_id=claim.agent_id,
        agent_version=claim.agent_version,
        turn_id=claim.turn_id,
        cancel_requested_at=finished.cancel_requested_at,
        started_at=finished.started_at,
        finished_at=finished.finished_at,
    )
