"""Writes the steps of a turn to the journal and publishes live events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Outage, RunLost
from nova_workers.base.observability.redaction import hide
from nova_workers.contracts import events as live
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.engine import (
    EngineOptions,
    EngineResult,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.orchestration import TASK_COMPLETE
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.refusals import LeftOut, about_tools
from nova_workers.contracts.runs import Claim, TurnFacts
from nova_workers.contracts.steps import ToolServerAway
from nova_workers.contracts.summaries import tool_result_summary
from nova_workers.contracts.thread_state import state_change
from nova_workers.contracts.waits import AskApproval, detail_of
from nova_workers.domain.orchestrations.sql.permissions import is_allowed_always
from nova_workers.domain.runs.rules.persist import persist
from nova_workers.domain.runs.rules.turns.allowance import TurnAllowance
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.facts import PermissionsUsed, turn_facts
from nova_workers.domain.runs.rules.turns.subagent_events import SubagentEvents
from nova_workers.domain.runs.rules.turns.told_text import ToldText
from nova_workers.domain.runs.rules.turns.tree_budget import TreeBudget
from nova_workers.domain.runs.sql import journal as ledger
from nova_workers.domain.runs.sql.leases import is_held
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.domain.tool_policy.rules import ToolPolicy, Verdict, lasting_call
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_LEAST_STEPS = 2
"""Steps after a compaction before the turn is stopped for another one."""


class TurnRecorder(TurnListener):
    """The listener of one turn.

    A step that is not final is committed before the engine continues. The final step is kept for the statement that
    ends the run, so a turn without tools needs no write between claim and finish.
    """

    def __init__(
        self,
        run: HeldRun,
        journal: Journal,
        *,
        database: Database,
        publisher: EventPublisher,
        events: RunEvents,
        clock: Clock,
        policy: ToolPolicy,
        away_servers: AwayServers,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self.has_answered = False
        """Whether a response of the model was complete in this attempt."""
        self._on_answer = on_answer
        """Called when the model begins to answer."""
        self.final_step: StepRecord | None = None
        self.refused: Mapping[str, str] = journal.refused
        """Notes for the blocks that the provider refused in this turn, by fingerprint."""
        self.unwritten: StepRecord | None = None
        """The current step until it is fully committed."""
        self.steps_committed = 0
        """The steps of this attempt."""
        self.compact_above_tokens: int | None = None
        """Stop the turn between two steps once a response reports a longer conversation than this."""
        self.is_over_window = False
        """Whether the turn was stopped for that reason."""
        place = run.claim.place
        self.budget = None if place is None or not place.limits.has_budget else TreeBudget(run.claim, place)
        """The budget of the orchestration that the run's agent is part of."""
        self.allowance: TurnAllowance | None = None
        """The allowance of the budgets that the run shares with others."""
        self._summary: str | None = None
        """The result with which the agent of an orchestration declared its task complete."""
        self.first_token_at: datetime | None = None
        self._run = run
        self._claim: Claim = run.claim
        self._database = database
        self._publisher = publisher
        self._events = events
        self._clock = clock
        self._policy = policy
        self._away_servers = away_servers
        self._facts = turn_facts(run.claim)
        self._offers: dict[str, Verdict] = {}
        self._options_left_out: set[str] = set()
        self._permissions_used = PermissionsUsed(journal.permissions_used)
        self._unannounced = journal.ended
        self._told = ToldText(journal)
        unannounced = {call.id for call in journal.ended}
        self._ended = {call.id for step in journal.steps for call in step.tool_calls if call.result is not None}
        self._ended -= unannounced
        self.take_journal(journal)

    def begin(self) -> None:
        """Publish that the attempt begins, and the text of a committed response whose calls it continues."""
        claim = self._claim
        self._events.emit(
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
        last = max(self._steps.values(), key=lambda step: step.index, default=None)
        if last is not None and not last.complete:
            self._correct_text(last)

    def _correct_text(self, step: StepRecord | None) -> None:
        if (correction := self._told.correction(step)) is not None:
            self._events.emit(correction)

    def take_journal(self, journal: Journal) -> None:
        """Continue from the committed journal of the turn."""
        if self._told:
            # The turn continues without the response that was streaming.
            self.on_restart()
        self.final_step = None
        self.unwritten = None
        self.is_over_window = False
        self._steering: tuple[ledger.Absorbed, ...] = ()
        if self.budget is not None:
            self.budget.repeat()
        self._spent = journal.spent
        self._compacted_through = journal.compacted_through
        self._waits = journal.waits
        self._steps_since_summary = 0
        self._steps = {step.index: step for step in journal.steps}
        last = journal.steps[-1] if journal.steps else None
        self._reopened = last.index if last is not None and not last.complete else None
        """The step that an earlier attempt began."""
        # The response of an incomplete step is in the journal already; the step is committed at the same position.
        self.seq = journal.next_seq - (len(last.messages) if last is not None and not last.complete else 0)
        """Position in the turn of the next step's first message."""

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Return the listener of a subagent. Its calls are authorized like the turn's own."""
        return SubagentEvents(self._events, name, self)

    @property
    def facts(self) -> TurnFacts:
        """The facts about the turn known so far."""
        return replace(self._facts, permissions_used=self._permissions_used.record())

    def note_options(self, options: EngineOptions) -> None:
        """Record the engine's options for the ledger."""
        self._facts = turn_facts(self._claim, options)

    def note_result(self, result: EngineResult) -> None:
        """Record facts from the engine's result for the ledger."""
        self._facts = replace(self._facts, tools_available=result.tools_available)

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Authorize a call by the tool policy. A call that needs approval waits for it if the engine supports waits."""
        verdict = self._policy.judge(tool_name, params)
        if verdict.kind == "ask" and await self._is_allowed_always(tool_name, params):
            verdict = Verdict("allow", "always, for the whole orchestration")
        self._permissions_used.add(tool_name, verdict)
        answer = verdict.authorization()
        if verdict.kind == "allow":
            return answer
        _log.info("tool.refused", tool=tool_name, verdict=verdict.kind, rule=verdict.rule)
        if verdict.kind == "deny":
            return answer
        # An engine without waits treats the reason as a refusal.
        request = AskApproval(tool_name=tool_name, params=params, reason=verdict.reason or "")
        return replace(answer, deferral=request.model_dump(mode="json"))

    async def may_offer(self, tool_name: str) -> bool:
        """Judge a tool that the provider runs. What is offered is no use of a permission yet."""
        verdict = self._offers[tool_name] = self._policy.judge(tool_name, {})
        return verdict.authorization().allowed

    def on_provider_call(self, tool_name: str) -> None:
        """Count the verdict with which the tool was offered."""
        if (verdict := self._offers.get(tool_name)) is not None:
            self._permissions_used.add(tool_name, verdict)

    async def confirm_run(self) -> None:
        """Check that no other worker can hold the run: no statement refuses effects outside of the ledger.

        Raises:
            RunLost: The lease was not renewed for so long that another worker may hold the run, since this process was
                stopped; or another worker took it when this one lost its session with Postgres.
        """
        run, claim = self._run, self._claim
        if run.is_doubted:
            if not await persist(self._database, run.abort, lambda c: is_held(c, claim.run_id, claim.fence)):
                raise RunLost("Another worker took the run before this call began.", run_id=claim.run_id)
        if not run.is_trusted(self._clock.monotonic_s()):
            raise RunLost("The lease may have expired before this call began.", run_id=claim.run_id)

    async def _is_allowed_always(self, tool_name: str, params: JsonObject) -> bool:
        """Return whether a person allowed such calls for the tree. Read when it matters, so that it applies at once."""
        place, tenant_id = self._claim.place, self._claim.tenant_id
        if place is None:
            return False
        call = lasting_call(tool_name, params)
        return await persist(
            self._database, self._run.abort, lambda c: is_allowed_always(c, tenant_id, place.orchestration_id, call)
        )

    def on_thinking(self) -> None:
        """Publish that the turn waits for the model."""
        self._events.emit(live.Thinking())

    def on_provider_wait(self, outage: Outage, why: str, pause_s: float) -> None:
        """Publish that the turn pauses because of the model provider."""
        until = self._clock.now() + timedelta(seconds=pause_s)
        self._events.emit(live.ProviderUnavailable.of(detail_of(outage, hide(why)), until, held=False))

    def on_token(self, text: str) -> None:
        """Publish a piece of the answer."""
        if self.first_token_at is None:
            self.first_token_at = self._clock.now()
            self._on_answer()
        # First the event, which refuses what is no text.
        self._events.emit(live.Token(text=text))
        self._told.add(text)

    def on_reasoning(self, text: str) -> None:
        """Publish a piece of thinking."""
        self._events.emit(live.Reasoning(text=text))

    def on_restart(self) -> None:
        """Publish that the streamed part of the response is void."""
        self._told.replace()
        self._events.emit(live.Restart())

    def on_assistant_message(self, text: str) -> None:
        """Publish narration."""
        self._told.replace(text)
        self._events.emit(live.AssistantMessage(text=text))

    def on_tool_use_summary(self, summary: str) -> None:
        """Publish the summary of a call."""
        self._events.emit(live.ToolUseSummary(summary=summary))

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Publish that a call begins."""
        self._events.emit(
            live.ToolStatus(tool_call_id=call.id, tool_name=call.tool_name, status="started", summary=summary)
        )

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Publish the progress of a call."""
        self._events.emit(
            live.ToolStatus(tool_call_id=call.id, tool_name=call.tool_name, status="running", summary=summary)
        )

    async def on_tool_calls(self, step: StepRecord) -> None:
        """Commit a response and its pending calls. Raises `RunLost`."""
        self._note_response()
        self._steps[step.index] = replace(step, complete=False)
        self.unwritten = step
        self._correct_text(step)
        event_id = str(self._events.upcoming())

        async def write(connection: Connection) -> None:
            await ledger.commit_calls(
                connection, self._claim.run_id, self._claim.fence, step, seq=self.seq, event_id=event_id
            )

        await persist(self._database, self._run.abort, write)
        self._note_commit()

    def _note_commit(self) -> None:
        """Note that the ledger has the usage of every call so far, in place of what was reserved for them."""
        if self.allowance is not None:
            self.allowance.committed()

    def _note_response(self) -> None:
        if not self.has_answered:
            self.has_answered = True
            if self.first_token_at is None:
                self._on_answer()

    async def on_tool_servers(self, away: tuple[ToolServerAway, ...]) -> None:
        """Publish which servers are away, and keep it for the agent's page."""
        if away:
            servers = tuple(live.AwayServer(name=each.name, reason=each.reason, output=each.output) for each in away)
            self._events.emit(live.ToolServersAway(servers=servers))
        claim = self._claim
        await self._away_servers.note(claim.tenant_id, claim.agent_id, away, self._clock.now())

    async def on_content_refused(self, left_out: tuple[LeftOut, ...]) -> None:
        """Record that later requests omit blocks. Raises `RunLost`."""
        # An earlier attempt may have recorded that the same tools are missing.
        left_out = tuple(each for each in left_out if not about_tools(each.note) or each.key not in self.refused)
        if not left_out:
            return
        refused = {each.key: each.note for each in left_out}
        self.refused = {**self.refused, **refused}

        async def write(connection: Connection) -> None:
            # Not those recorded before: a person may have brought them back meanwhile.
            await ledger.commit_refused(connection, self._claim.run_id, self._claim.fence, refused)

        await persist(self._database, self._run.abort, write)
        for each in left_out:
            self._events.emit(live.ContentLeftOut(kind=str(each.block.get("type")), note=each.note))

    def on_option_left_out(self, option: str, note: str) -> None:
        """Publish and log the note, once."""
        if option not in self._options_left_out:
            self._options_left_out.add(option)
            _log.warning("model.option_left_out", option=option, note=note)
            self._events.emit(live.OptionLeftOut(option=option, note=note))

    def announce_ended(self) -> None:
        """Emit the end of each call that ended outside of this attempt."""
        self._announce_ends(self._unannounced)

    def close(self, step: StepRecord | None) -> None:
        """Emit the end of each interrupted call of the turn's last step, and its text if it differs from the stream."""
        self._correct_text(step)
        if step is not None:
            self._announce_ends(step.tool_calls)

    def _announce_ends(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            if call.id not in self._ended:
                self._announce_end(call, tool_result_summary(call))

    def _announce_end(self, call: ToolCall, summary: str) -> None:
        self._ended.add(call.id)
        self._events.emit(
            live.ToolStatus(
                tool_call_id=call.id,
                tool_name=call.tool_name,
                status=call.status if call.status in ("completed", "interrupted") else "failed",
                summary=summary,
            )
        )
        change = state_change(call)
        if change is not None:
            self._events.emit(change)

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Publish and commit the result of a call. Raises `RunLost`."""
        self._announce_end(call, summary)
        step = self._steps[call.step]
        # The response was committed with the results of calls that were refused.
        committed = any(known.id == call.id and known.result is not None for known in step.tool_calls)
        self._steps[call.step] = replace(
            step, tool_calls=tuple(call if known.id == call.id else known for known in step.tool_calls)
        )
        # A step's only call is committed with the step right after this; of several calls, each is committed by itself.
        if len(step.tool_calls) > 1 and not committed:

            async def write(connection: Connection) -> None:
                await ledger.commit_result(connection, self._claim.run_id, self._claim.fence, call)

            await persist(self._database, self._run.abort, write)

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Commit a step and absorb steering messages; keep a final step for the end of the run. Raises `RunLost`."""
        self.unwritten = step
        self._summary = self._declared_summary(step)
        if step.final:
            self.final_step = step
            return "stop"
        self._note_response()
        self._steps_since_summary += 1
        self.is_over_window = self._is_over_window(step)
        stop = self._run.stop_at_step or self.is_over_window or self._summary is not None
        spent = self._spent + step.usage + step.tool_usage
        self._correct_text(step)
        # The usage event comes first, because the step event closes the step.
        event_id = str(self._events.upcoming(2))
        facts = self.facts
        clears = self.clears(step.index)

        news: TreeNews | None = None

        async def write(connection: Connection) -> tuple[ledger.Absorbed, ...]:
            nonlocal news
            absorbed = await ledger.commit_step(
                connection,
                self._claim.run_id,
                self._claim.fence,
                step,
                seq=self.seq,
                event_id=event_id,
                used=spent,
                facts=facts,
                absorb=not stop,
                clears=clears,
            )
            if self.budget is not None:
                news = await self.budget.look(connection, step.index + 1)
            return absorbed

        absorbed = await persist(self._database, self._run.abort, write)
        self._note_commit()
        if clears:
            self._run.clear()
        self._events.emit(live.Usage.of(spent))
        self._events.emit(live.Step(index=step.index))
        self._told.replace()
        self.seq += len(step.messages) + len(absorbed)
        self._steps[step.index] = step
        self.unwritten = None
        self._spent = spent
        self.steps_committed += 1
        self._steering = absorbed
        self._announce_steering(absorbed)
        if news is not None:
            self._publisher.announce_tree(news)
        stop = stop or (self.budget is not None and self.budget.stops)
        return "stop" if stop or self._run.stop_at_step else "continue"

    def clears(self, step: int) -> bool:
        """Return whether the end of a step, or a wait in it, proves that the run does not end its process.

        What a lost worker began may be what ended it, so to close that proves nothing.
        """
        return self._claim.losses > 0 and step != self._reopened

    def _declared_summary(self, step: StepRecord) -> str | None:
        """Return the summary that an orchestration's agent gave to `task_complete`: its turn ends with this step."""
        if self._claim.place is None:
            return None
        done = (call for call in step.tool_calls if call.tool_name == TASK_COMPLETE and call.status == "completed")
        return next((str(call.params.get("summary", "")) for call in done), None)

    def within_tree(self, result: EngineResult) -> EngineResult:
        """Return the result of a turn that stopped because of its orchestration: complete, or without budget."""
        if result.stop_reason != "tool_use" or result.deferred:
            return result
        if self._summary is not None:
            return replace(result, text=self._summary, stop_reason="end_turn", limit=None)
        if self.budget is not None and self.budget.reached is not None and not self.budget.sums_up:
            return replace(result, stop_reason="max_tokens", limit=self.budget.reached)
        return result

    @property
    def goes_on(self) -> bool:
        """Whether the turn was stopped between two steps, to go on in this attempt."""
        return self.is_over_window or (self.budget is not None and self.budget.sums_up)

    def _is_over_window(self, step: StepRecord) -> bool:
        """Return whether the conversation comes near the window, enough steps after the last compaction."""
        if self.compact_above_tokens is None or self._steps_since_summary < _LEAST_STEPS:
            return False
        return step.usage.total_tokens > self.compact_above_tokens

    async def take_steering(self) -> tuple[Message, ...]:
        """Return the messages that joined with the last step."""
        absorbed, self._steering = self._steering, ()
        notes = () if self.budget is None else self.budget.take_notes()
        return (*(item.message for item in absorbed), *notes)

    def _announce_steering(self, absorbed: Sequence[ledger.Absorbed]) -> None:
        """Publish absorbed messages, also when the turn continues on another worker after a drain."""
        if not absorbed:
            return
        self._events.emit(live.Steered(run_ids=tuple(item.run_id for item in absorbed)))
        for item in absorbed:
            end = live.StreamEnd(run_id=item.run_id, final=True, status="merged", merged_into=self._claim.run_id)
            self._publisher.announce_end(item.run_id, end)

    def journal(self) -> Journal:
        """Return the steps of the turn so far. The last one may have open calls."""
        steps = tuple(self._steps[index] for index in sorted(self._steps))
        return Journal(steps, self.seq, self._spent, compacted_through=self._compacted_through, waits=self._waits)
