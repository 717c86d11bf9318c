"""A worker that a test drives one operation at a time: claim, emit, commit a step, finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nova_workers.base.ids import new_id
from nova_workers.contracts import events as live
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import EngineError, StepRecord, ToolCall
from nova_workers.contracts.events import Event, EventCursor
from nova_workers.contracts.runs import Claim, Finish, FinishStatus, PlannedEffect, TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import CallClientTool, WaitRequest
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run, requeue_run
from nova_workers.domain.runs.sql.journal import commit_calls, commit_step
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.domain.waits.sql.suspend import NewWait, suspend_run
from nova_workers.ledger.database import Database
from tests.support.waiting import until

ALL_SCOPES = ("runs", "prompts", "agents", "trust", "workspace", "secrets", "keys", "channels", "operator")


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant and the secret of its key."""

    id: str
    key: str
    key_id: str


async def make_tenant(database: Database, scopes: Sequence[str] = ALL_SCOPES, tenant_id: str | None = None) -> Tenant:
    """Create a tenant, unless an id is given, and a key for it."""
    tenant = tenant_id or new_id("ten")
    async with database.transaction() as connection:
        if await ensure_tenant(connection, tenant, "test"):
            await seed_defaults(connection, tenant)
        made = await create_key(connection, tenant, name="test", scopes=scopes)
    return Tenant(tenant, made.key, made.id)


@dataclass
class Turn:
    """A claimed run that a test drives."""

    worker: ManualWorker
    claim: Claim
    events: RunEvents
    step: int = 0
    seq: int = 1
    said: list[EventCursor] = field(default_factory=list[EventCursor])

    async def emit(self, *events: Event) -> None:
        """Send live events and wait until they are in Redis."""
        for event in events:
            self.events.emit(event)
            self.said.append(self.events.upcoming(0))
        await self.worker.publisher.drain(5)

    async def commit(self, text: str, *calls: ToolCall, thinking: str = "") -> EventCursor:
        """Commit a step with its tools' results, then emit its events; return the id of the last one."""
        content: list[JsonObject] = [{"type": "thinking", "thinking": thinking}] if thinking else []
        content += [text_block(text)] if text else []
        content += [{"type": "tool_use", "id": c.id, "name": c.tool_name, "input": c.params} for c in calls]
        results = tuple({"type": "tool_result", "tool_use_id": c.id, "content": [text_block("done")]} for c in calls)
        messages = [Message("assistant", tuple(content))]
        if results:
            messages.append(Message("user", results))
        step = StepRecord(self.step, tuple(messages), tool_calls=calls, usage=TokenUsage(10, 5), model="scripted")
        closing = self.events.upcoming(2)
        used = TokenUsage(10 * (self.step + 1), 5 * (self.step + 1))
        async with self.worker.database.connection() as connection:
            await commit_step(
                connection,
                self.claim.run_id,
                self.claim.fence,
                step,
                seq=self.seq,
                event_id=str(closing),
                used=used,
                facts=TurnFacts("unified", "sandbox", {}),
                absorb=True,
                clears=False,
            )
        self.step += 1
        self.seq += len(messages)
        await self.emit(live.Usage.of(used), live.Step(index=step.index))
        return closing

    async def open_call(self, tool_name: str) -> None:
        """Commit a response with a call that is not done. No events are sent."""
        call = ToolCall("call_open", tool_name, {}, step=self.step, sequence=0)
        used = {"type": "tool_use", "id": call.id, "name": tool_name, "input": {}}
        step = StepRecord(self.step, (Message("assistant", (used,)),), tool_calls=(call,), model="scripted")
        async with self.worker.database.connection() as connection:
            event_id = str(self.events.upcoming())
            await commit_calls(connection, self.claim.run_id, self.claim.fence, step, seq=self.seq, event_id=event_id)

    async def suspend(self, text: str, *waits: NewWait) -> None:
        """Commit a response with a call for each wait, and suspend the run. No events are sent."""
        calls = tuple(
            ToolCall(wait.tool_call_id, *_tool_of(wait.request), step=self.step, sequence=at)
            for at, wait in enumerate(waits)
        )
        content: list[JsonObject] = [text_block(text)] if text else []
        content += [{"type": "tool_use", "id": c.id, "name": c.tool_name, "input": c.params} for c in calls]
        step = StepRecord(self.step, (Message("assistant", tuple(content)),), tool_calls=calls, model="scripted")
        claim = self.claim
        async with self.worker.database.connection() as connection:
            event_id = str(self.events.upcoming())
            await commit_calls(connection, claim.run_id, claim.fence, step, seq=self.seq, event_id=event_id)
            await suspend_run(connection, claim, waits, TokenUsage(), TurnFacts("unified", "sandbox", {}))

    async def finish(
        self,
        text: str = "done",
        status: FinishStatus = "succeeded",
        *,
        error: EngineError | None = None,
        publish: bool = True,
        effects: tuple[PlannedEffect, ...] = (),
    ) -> EventCursor:
        """End the run with a last step, then emit its events; return the id of the final one."""
        final = self.events.upcoming()
        last = StepRecord(
            self.step,
            (Message("assistant", (text_block(text),)),),
            usage=TokenUsage(20, 7),
            model="scripted",
            final=True,
        )
        finish = Finish(
            status=status,
            stop_reason="error" if error else "aborted" if status == "canceled" else "end_turn",
            text=text,
            last_step=last,
            usage=last.usage,
            error=error,
            engine="scripted",
            model="scripted",
            final_event_id=str(final),
            effects=effects,
        )
        async with self.worker.database.connection() as connection:
            await finish_run(connection, self.claim, finish, seq=self.seq)
        if publish:
            end = live.StreamEnd(
                run_id=self.claim.run_id, final=True, status=status, stop_reason=finish.stop_reason, text=text
            )
            await self.emit(end)
        return final

    async def requeue(self) -> None:
        """Requeue the run, as a drain does."""
        async with self.worker.database.connection() as connection:
            await requeue_run(connection, self.claim)


@dataclass(frozen=True)
class ManualWorker:
    """A worker without an engine."""

    database: Database
    publisher: EventPublisher

    async def claim(self, thread_id: str) -> Turn:
        """Claim the next run of a thread, once its message is there, and emit that it started."""
        claim = await until(lambda: self.next_claim(thread_id), f"a run of {thread_id} to claim")
        assert claim is not None
        turn = Turn(self, claim, self.publisher.open(claim.run_id, claim.attempt))
        await turn.emit(
            live.StreamStart(run_id=claim.run_id, thread_id=thread_id, attempt=claim.attempt, agent_id=claim.agent_id)
        )
        return turn

    async def next_claim(self, thread_id: str) -> Claim | None:
        """Claim the next run of a thread, if there is one that may begin now."""
        async with self.database.connection() as connection:
            claim = await claim_next(connection, thread_id, worker_id="wkr_test", lease_ttl_s=30, max_attempts=5)
        return claim if isinstance(claim, Claim) else None

    async def play(self, thread_id: str, text: str = "done") -> Turn:
        """Claim the next run and finish it."""
        turn = await self.claim(thread_id)
        await turn.finish(text)
        return turn


def _tool_of(request: WaitRequest) -> tuple[str, JsonObject]:
    """Return the name and the arguments of a tool that waits."""
    return (request.tool_name, request.params) if isinstance(request, CallClientTool) else ("ask", {})
