"""The journal of a turn: writes what the run protocol requires of each step, before the engine goes on.

All is written under the fence of the run's claim, and retried while the database is unavailable (`persist`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import RunLost
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import JsonObject, Message, storable
from nova_workers.contracts.engine import (
    EngineOptions,
    EngineResult,
    ForwardingListener,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.orchestration import TASK_COMPLETE
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.refusals import LeftOut, about_tools
from nova_workers.contracts.runs import Claim, TurnFacts, TurnRole
from nova_workers.contracts.steps import ModelRequest, ToolServerAway
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import AskApproval
from nova_workers.domain.capabilities.rules.delegation import ASK_AGENT
from nova_workers.domain.evaluations.rules.replay import Replay
from nova_workers.domain.orchestrations.sql.permissions import is_allowed_always
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.budgets import TreeBudget, TurnAllowance
from nova_workers.domain.runs.rules.turns.live import LiveEvents, SubagentEvents
from nova_workers.domain.runs.rules.turns.requests import CallRecorder, WrittenParts
from nova_workers.domain.runs.sql import journal as ledger
from nova_workers.domain.runs.sql.leases import is_held
from nova_workers.domain.runs.sql.requests import RecordedCall
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.domain.tool_policy.rules import ToolPolicy, Verdict, lasting_call
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.persist import persist

_log = structlog.get_logger(__name__)

_LEAST_STEPS = 2
"""Steps after a compaction before the turn is stopped for another one."""
_MAX_TOOLS = 200
"""Tool names counted separately; a model may invent more, which are counted together."""
_OTHERS = "*"


class TurnJournal(ForwardingListener):
    """The listener of one attempt at a turn: takes what an engine waits for. What it only reports is the events' own.

    A step that is not final is committed before the engine continues. The final step is kept for the statement that
    ends the run, so a turn without tools needs no write between claim and finish.

    Attributes:
        policy: Judges the turn's calls. Set before the turn is played.
    """

    policy: ToolPolicy
    replay: Replay | None = None
    """What answers the calls of a run of an evaluation. Set before the turn is played."""

    def __init__(
        self,
        run: HeldRun,
        events: LiveEvents,
        *,
        database: Database,
        clock: Clock,
        away_servers: AwayServers,
        written_parts: WrittenParts,
    ) -> None:
        super().__init__(events)
        self.has_answered = False
        """Whether a response of the model was complete in this attempt."""
        self.steps_committed = 0
        """How many steps this attempt committed."""
        self.compact_above_tokens: int | None = None
        """Stop the turn between two steps once a response reports a longer conversation than this."""
        place = run.claim.place
        self.budget = None if place is None or not place.limits.has_budget else TreeBudget(run, place)
        """The budget of the orchestration that the run's agent is part of."""
        self.allowance: TurnAllowance | None = None
        """The allowance of the budgets that the run shares with others."""
        self._summary: str | None = None
        """The result with which the agent of an orchestration declared its task complete."""
        self._run = run
        self._events = events
        self._database = database
        self._clock = clock
        self._away_servers = away_servers
        self.calls = CallRecorder(run.claim.tenant_id, written_parts, clock)
        """What the models of this attempt were asked with."""
        self._facts = turn_facts(run.claim)
        self._offers: dict[str, Verdict] = {}
        self.resume(Journal((), 1))
        self.is_resumed = run.claim.attempt == 1
        """Whether it continues what earlier attempts committed, if there were any."""

    def resume(self, journal: Journal) -> None:
        """Continue what earlier attempts committed. Once, before the turn is played."""
        self.refused: Mapping[str, str] = journal.refused
        """Notes for the blocks that the provider refused in this turn, by fingerprint."""
        self._permissions_used = PermissionsUsed(journal.permissions_used)
        self._events.resume(journal)
        self.reload(journal)
        self.is_resumed = True

    def reload(self, journal: Journal) -> None:
        """Continue from the committed journal of the turn."""
        self._events.void_open_text()
        self.final_step: StepRecord | None = None
        self.unwritten: StepRecord | None = None
        """The current step until it is fully committed."""
        self.is_over_window = False
        """Whether the turn was stopped because the conversation is too long."""
        self._steering: tuple[ledger.Absorbed, ...] = ()
        if self.budget is not None:
            self.budget.repeat()
        self._spent = journal.spent
        self._compacted_through = journal.compacted_through
        self._waits = journal.waits
        self._steps_since_summary = 0
        self._steps = {step.index: step for step in journal.steps}
        open_step = self.open_step
        self._reopened = None if open_step is None else open_step.index
        """The step that an earlier attempt began."""
        # The response of an incomplete step is in the journal already; the step is committed at the same position.
        self.seq = journal.next_seq - (0 if open_step is None else len(open_step.messages))
        """Position in the turn of the next step's first message."""

    @property
    def committed(self) -> Journal:
        """The steps of the turn so far. The last one may have open calls."""
        steps = tuple(self._steps[index] for index in sorted(self._steps))
        return Journal(steps, self.seq, self._spent, compacted_through=self._compacted_through, waits=self._waits)

    @property
    def open_step(self) -> StepRecord | None:
        """The step that was begun and is not complete."""
        last = self._steps[max(self._steps)] if self._steps else None
        return last if last is not None and not last.complete else None

    @property
    def _next_step(self) -> int:
        """The index of the step that comes next. Steps are added in their order."""
        return next(reversed(self._steps), -1) + 1

    def spent_with(self, deferred: TokenUsage) -> TokenUsage:
        """Return the usage of the turn with its open step, whose calls wait.

        Args:
            deferred: What the other calls of that step have used.
        """
        # What a step used that an earlier attempt began is in the turn's sum already.
        open_step = self.open_step
        return self._spent + (TokenUsage() if open_step is None else open_step.usage) + deferred

    @property
    def facts(self) -> TurnFacts:
        """The facts about the turn known so far."""
        return replace(self._facts, permissions_used=self._permissions_used.record())

    def note_options(self, options: EngineOptions) -> None:
        """Record the engine's options for the ledger."""
        self._facts = turn_facts(self._run.claim, options)

    def note_result(self, result: EngineResult) -> None:
        """Record facts from the engine's result for the ledger."""
        self._facts = replace(self._facts, tools_available=result.tools_available)

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Return the listener of a subagent. Its calls are authorized like the turn's own."""
        return SubagentEvents(self._events.stream, name, self)

    def on_request(self, request: ModelRequest) -> None:
        """Note what the model is asked with, which is committed with its response."""
        self.calls.ask(request, parent_turn_id=self._run.claim.parent_turn_id)

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Authorize a call by the tool policy. A call that needs approval waits for it if the engine supports waits."""
        verdict = self.policy.judge(tool_name, params)
        if self.replay is not None:
            answer = verdict.authorization()
            return answer if verdict.kind == "deny" else self.replay.decide(tool_name, params) or answer
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
        verdict = self._offers[tool_name] = self.policy.judge(tool_name, {})
        is_live = self.replay is None or self.replay.is_live(tool_name)
        return is_live and verdict.authorization().allowed

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
        run, claim = self._run, self._run.claim
        if run.is_doubted:
            if not await persist(self._database, run.abort, lambda c: is_held(c, claim.run_id, claim.fence)):
                raise RunLost("Another worker took the run before this call began.", run_id=claim.run_id)
        if not run.is_trusted(self._clock.monotonic_s()):
            raise RunLost("The lease may have expired before this call began.", run_id=claim.run_id)

    async def _is_allowed_always(self, tool_name: str, params: JsonObject) -> bool:
        """Return whether a person allowed such calls for the tree. Read when it matters, so that it applies at once."""
        place, tenant_id = self._run.claim.place, self._run.claim.tenant_id
        if place is None:
            return False
        call = lasting_call(tool_name, params)
        return await persist(
            self._database, self._run.abort, lambda c: is_allowed_always(c, tenant_id, place.orchestration_id, call)
        )

    async def on_tool_servers(self, away: tuple[ToolServerAway, ...]) -> None:
        """Emit which servers are away, and keep it for the agent's page."""
        self._events.servers_away(away)
        claim = self._run.claim
        await self._away_servers.note(claim.tenant_id, claim.agent_id, away, self._clock.now())

    async def on_content_refused(self, left_out: tuple[LeftOut, ...]) -> None:
        """Commit that later requests omit blocks. Raises `RunLost`."""
        # An earlier attempt may have recorded that the same tools are missing.
        left_out = tuple(each for each in left_out if not about_tools(each.note) or each.key not in self.refused)
        if not left_out:
            return
        refused = {each.key: each.note for each in left_out}
        self.refused = {**self.refused, **refused}
        claim = self._run.claim
        # Not those recorded before: a person may have brought them back meanwhile.
        await persist(
            self._database, self._run.abort, lambda c: ledger.commit_refused(c, claim.run_id, claim.fence, refused)
        )
        self._events.content_left_out(left_out)

    async def on_tool_calls(self, step: StepRecord) -> None:
        """Commit a response and its pending calls. Raises `RunLost`."""
        self._note_response()
        self._steps[step.index] = replace(step, complete=False)
        self.unwritten = step
        self._events.correct_text(step)
        claim, event_id = self._run.claim, str(self._events.stream.upcoming())
        asked = self.calls.of_step(step)
        await persist(
            self._database,
            self._run.abort,
            lambda c: ledger.commit_calls(
                c, claim.run_id, claim.fence, step, seq=self.seq, event_id=event_id, asked=asked
            ),
        )
        self._note_commit(asked)

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Emit and commit the result of a call. Raises `RunLost`."""
        self._events.end_call(call, summary)
        if call.step == self._next_step:
            # It was made before its response, which is committed with it.
            return
        step = self._steps[call.step]
        # The response was committed with the results of calls that were refused.
        committed = any(known.id == call.id and known.result is not None for known in step.tool_calls)
        self._steps[call.step] = replace(
            step, tool_calls=tuple(call if known.id == call.id else known for known in step.tool_calls)
        )
        # A step's only call is committed with the step right after this; of several calls, each is committed by itself.
        if len(step.tool_calls) > 1 and not committed:
            claim = self._run.claim
            await persist(
                self._database, self._run.abort, lambda c: ledger.commit_result(c, claim.run_id, claim.fence, call)
            )

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
        self._events.correct_text(step)
        # The usage event comes first, because the step event closes the step.
        claim, event_id = self._run.claim, str(self._events.stream.upcoming(2))
        facts = self.facts
        clears = self.clears(step.index)
        asked = self.calls.of_step(step)

        news: TreeNews | None = None

        async def write(connection: Connection) -> tuple[ledger.Absorbed, ...]:
            nonlocal news
            absorbed = await ledger.commit_step(
                connection,
                claim.run_id,
                claim.fence,
                step,
                seq=self.seq,
                event_id=event_id,
                used=spent,
                facts=facts,
                absorb=step.joins and not stop,
                clears=clears,
                asked=asked,
            )
            if self.budget is not None:
                news = await self.budget.look(connection, step.index + 1)
            return absorbed

        absorbed = await persist(self._database, self._run.abort, write)
        self._note_commit(asked)
        if clears:
            self._run.clear()
        self._events.step_committed(step, spent, absorbed)
        if news is not None:
            self._events.tree_changed(news)
        self.seq += len(step.messages) + len(absorbed)
        self._steps[step.index] = step
        self.unwritten = None
        self._spent = spent
        self.steps_committed += 1
        self._steering = absorbed
        stop = stop or (self.budget is not None and self.budget.stops)
        return "stop" if stop or self._run.stop_at_step else "continue"

    def clears(self, step: int) -> bool:
        """Return whether the end of a step, or a wait in it, proves that the run does not end its process.

        What a lost worker began may be what ended it, so to close that proves nothing.
        """
        return self._run.claim.losses > 0 and step != self._reopened

    def _declared_summary(self, step: StepRecord) -> str | None:
        """Return the summary that an agent of an orchestration gave to `task_complete`: its turn ends here."""
        if self._run.claim.place is None:
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
        """Return whether the conversation nears the window, and enough steps have passed since the last compaction."""
        if self.compact_above_tokens is None or self._steps_since_summary < _LEAST_STEPS:
            return False
        return step.usage.total_tokens > self.compact_above_tokens

    async def take_steering(self) -> tuple[Message, ...]:
        """Return the messages that joined with the last step."""
        absorbed, self._steering = self._steering, ()
        notes = () if self.budget is None else self.budget.take_notes()
        return (*(item.message for item in absorbed), *notes)

    def _note_commit(self, asked: RecordedCall | None) -> None:
        """Note that the ledger has the usage of every call so far, in place of what was reserved for them."""
        self.calls.note_commit(asked)
        if self.allowance is not None:
            self.allowance.committed()

    def _note_response(self) -> None:
        if not self.has_answered:
            self.has_answered = True
            if self._events.first_token_at is None:
                self._events.on_answer()


class PermissionsUsed:
    """Counts the verdicts on a turn's calls, in this attempt and those before it."""

    def __init__(self, before: Mapping[str, Any] | None) -> None:
        """Continue from the counts of earlier attempts, as returned by `record`."""
        self._verdicts: dict[str, Counter[str]] = {}
        self._rules: dict[str, list[str]] = {}
        for tool, used in (before or {}).items():
            self._verdicts[tool] = Counter({kind: count for kind, count in used.items() if kind != "rules"})
            self._rules[tool] = list(used.get("rules", ()))

    def add(self, tool_name: str, verdict: Verdict) -> None:
        """Count a verdict."""
        name = storable(tool_name)
        if name not in self._verdicts and len(self._verdicts) >= _MAX_TOOLS:
            name = _OTHERS
        self._verdicts.setdefault(name, Counter())[verdict.kind] += 1
        rules = self._rules.setdefault(name, [])
        if verdict.rule is not None and verdict.rule not in rules:
            rules.append(verdict.rule)

    def record(self) -> JsonObject:
        """Return all counts by tool: ``{"Bash": {"allow": 2, "ask": 1, "rules": ["ask: git push*"]}}``."""
        return {
            tool: {**kinds, **({"rules": self._rules[tool]} if self._rules.get(tool) else {})}
            for tool, kinds in self._verdicts.items()
        }


def turn_facts(claim: Claim, options: EngineOptions | None = None) -> TurnFacts:
    """Return the facts about a claimed run's turn. Without options, those known before it is executed."""
    agent = claim.agent
    return TurnFacts(
        role=_role(claim, options),
        toolset_name=agent.trust,
        permissions_granted=_granted(agent),
        workspace_path=None if options is None else options.cwd,
    )


def _role(claim: Claim, options: EngineOptions | None) -> TurnRole:
    if claim.parent_run_id is not None:
        return "worker"
    if claim.agent.subagents:
        return "manager"
    servers = {} if options is None else options.mcp_servers
    asks = any(
        server.tools is None or ASK_AGENT in server.tools for name, server in servers.items() if name == "agents"
    )
    return "manager" if asks else "unified"


def _granted(agent: AgentSpec) -> JsonObject:
    granted: JsonObject = {
        "trust": agent.trust,
        "directories": list(agent.directories),
        "capabilities": {
            name: None if grant.tools is None else list(grant.tools) for name, grant in agent.capabilities.items()
        },
    }
    return granted | agent.permissions.model_dump(mode="json", exclude_defaults=True)
