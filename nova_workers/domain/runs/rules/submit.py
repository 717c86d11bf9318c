"""Accepts messages: writes a run to the ledger and rings a doorbell. Every entry point submits through here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from nova_workers.base.errors import Conflict, Gone, NotFound, ThreadBusy, deleted, missing
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.runs import Accepted, Submission
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.idempotency.sql import once
from nova_workers.domain.runs.rules.options import OptionRules
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.sql import submit as ledger
from nova_workers.domain.threads.sql.records import fork_thread
from nova_workers.ledger.database import Connection
from nova_workers.ledger.in_doubt import doubtful, write_once
from nova_workers.ledger.work import UnitOfWork, Work
from nova_workers.ledger.write_record import name_outcome

MakeThread = Callable[[Connection], Awaitable[str]]
"""Makes or chooses the thread of a message, in the transaction that inserts its run, and returns its id. It may be
called again, in another transaction, if a commit is not confirmed."""

WithRun = Callable[[Connection, str], Awaitable[None]]
"""Writes, in the transaction that inserts a run, what its message has beside; it gets the run's id. It is not called
where an earlier request made the run, and may be called again, in another transaction, if a commit is not confirmed."""

_AFTER_S = 0.01
"""Margin of a timer after the start time, so that the database's clock has passed it."""


class Submitter:
    """Accepts messages. A returned run is committed, so it survives a broker failure."""

    def __init__(self, work: Work, scheduled: Scheduled, *, options: OptionRules | None = None) -> None:
        """Take the parts.

        Args:
            work: Begins the units of work.
            scheduled: Starts runs at their times.
            options: Checks the options of runs; None where no message has any.
        """
        self._work = work
        self._options = options
        self._scheduled = scheduled

    async def submit(
        self,
        submission: Submission,
        *,
        run_id: str | None = None,
        make_thread: MakeThread | None = None,
        with_run: WithRun | None = None,
    ) -> Accepted:
        """Queue a message on its thread, or schedule it for later.

        Args:
            submission: The message.
            run_id: A new id, where the caller follows the run already.
            make_thread: Makes the message's thread, in place of the one that the submission names. Nothing of it stays
                where the message is refused, or where an earlier request with its key made the run.
            with_run: Writes what the message has beside.

        Returns:
            The run; for an idempotency key that was used before, the run of its first use.

        Raises:
            NotFound: No such thread or agent in this tenant; or the agent never had the version.
            Gone: The thread, or its agent, was deleted.
            AgentRenamed: The agent has another id now.
            InvalidInput: Its agent or its engine cannot have an option of the run.
            ThreadBusy: ``on_busy`` is ``reject`` and the thread has an open run.
            IdempotencyMismatch: The key was used for another request.
            Unavailable: The database does not answer. The error says whether the run may exist; repeating the
                submission with the same idempotency key returns it.
        """
        run_id = run_id or new_id("run")
        name_outcome(f"/v1/runs/{run_id}", run_id=run_id)
        accepted = await write_once(
            lambda: self._write(submission, run_id, make_thread, with_run),
            lambda: self._find(submission, run_id),
            doubt=lambda: doubtful("the message", submission.request, run_id=run_id),
        )
        if accepted.replayed:
            name_outcome(f"/v1/runs/{accepted.run_id}", run_id=accepted.run_id)
        elif accepted.start_at is not None:
            delay_s = (accepted.start_at - accepted.created_at).total_seconds()
            self._scheduled.start_after(accepted.thread_id, delay_s + _AFTER_S)
        return accepted

    async def _write(
        self, submission: Submission, run_id: str, make_thread: MakeThread | None, with_run: WithRun | None
    ) -> Accepted:
        alone = make_thread is None and with_run is None
        plain = submission.request is None and submission.options is None and submission.asked_version is None and alone
        if plain and submission.on_busy not in {"reject", "interrupt"}:
            # The hot path: one statement, one round trip.
            async with self._work.begin_statement() as tx:
                accepted = await self._insert_on(tx.connection, submission, run_id)
                _follow(tx, accepted)
        else:
            async with self._work.begin() as tx:
                accepted = await self._insert_once(tx.connection, submission, run_id, make_thread, with_run)
                _follow(tx, accepted)
        return accepted

    async def _find(self, submission: Submission, run_id: str) -> Accepted | None:
        """Return the run of a submission whose commit was not confirmed, if it is there."""
        async with self._work.begin_statement() as tx:
            accepted = await ledger.find_accepted(tx.connection, submission.tenant_id, run_id)
            if accepted is not None:
                _follow(tx, accepted)
        return accepted

    async def _insert_once(
        self,
        connection: Connection,
        submission: Submission,
        run_id: str,
        make_thread: MakeThread | None,
        with_run: WithRun | None,
    ) -> Accepted:
        async def make() -> Accepted:
            placed = submission
            if make_thread is not None:
                placed = replace(submission, thread_id=await make_thread(connection), agent_id=None, ephemeral=False)
            accepted = await self._insert_guarded(connection, placed, run_id)
            if with_run is not None:
                await with_run(connection, run_id)
            return accepted

        async def find(made_id: str) -> Accepted:
            earlier = await ledger.find_accepted(connection, submission.tenant_id, made_id)
            if earlier is None:
                raise deleted("run", made_id, "Use a new Idempotency-Key.")
            return earlier

        accepted, is_replay = await once(
            connection,
            submission.tenant_id,
            submission.request,
            make,
            find,
            made_id=run_id,
        )
        return replace(accepted, replayed=True) if is_replay else accepted

    async def _insert_guarded(self, connection: Connection, submission: Submission, run_id: str) -> Accepted:
        if submission.options is not None:
            assert self._options is not None  # noqa: S101 - given where messages may have options
            await self._options.check(connection, submission, submission.options)
        interrupted: str | None = None
        if submission.thread_id is not None and submission.on_busy in {"reject", "interrupt"}:
            busy = await ledger.lock_thread(connection, submission.tenant_id, submission.thread_id)
            if busy is not None and submission.on_busy == "reject":
                raise ThreadBusy(
                    f"Thread {submission.thread_id!r} is busy with run {busy!r}, and on_busy is 'reject'. "
                    "Wait for it, cancel it, or send with on_busy enqueue, interrupt or steer.",
                    active_run_id=busy,
                )
            if submission.on_busy == "interrupt":
                interrupted = await ledger.interrupt_active(connection, submission.thread_id)
        return await self._insert_on(connection, submission, run_id, interrupted)

    async def _insert_on(
        self, connection: Connection, submission: Submission, run_id: str, interrupted: str | None = None
    ) -> Accepted:
        if submission.thread_id is None:
            accepted = await ledger.insert_run_on_new_thread(connection, submission, run_id)
        else:
            front = submission.on_busy == "interrupt"
            accepted = await ledger.insert_run(connection, submission, run_id, front=front)
        if accepted is None:
            raise await self._refusal(connection, submission)
        tenant_id, version = submission.tenant_id, submission.asked_version
        if version is not None and not await ledger.ask_for_version(connection, tenant_id, [run_id], version):
            raise missing("agent_version", version, f"Agent {accepted.agent_id!r} has had no such version.")
        return _with_interrupted(accepted, interrupted)

    async def _refusal(self, connection: Connection, submission: Submission) -> NotFound | Gone:
        if submission.thread_id is None:
            return await self._no_agent(connection, submission)
        row = await ledger.why_no_thread(connection, submission.tenant_id, submission.thread_id)
        if row is None:
            return missing("thread", submission.thread_id)
        if row["thread_deleted"]:
            return deleted("thread", submission.thread_id, "Start a new one.")
        text = f"Agent {row['agent_id']!r} of thread {submission.thread_id!r} was deleted."
        return Gone(text, kind="agent", id=row["agent_id"])

    async def _no_agent(self, connection: Connection, submission: Submission) -> NotFound | Gone:
        await refuse_former_id(connection, submission.tenant_id, submission.agent_id)
        hint = "`nova agents list` or GET /v1/agents lists the agents."
        deleted_at = await ledger.agent_deleted_at(connection, submission.tenant_id, submission.agent_id)
        if deleted_at is None:
            return missing("agent", submission.agent_id, hint)
        when = f"{deleted_at:%Y-%m-%d %H:%M} UTC"
        text = f"Agent {submission.agent_id!r} was deleted at {when}. {hint}"
        return Gone(text, kind="agent", id=submission.agent_id)


async def thread_after(
    connection: Connection, tenant_id: str, run_id: str, *, label: str | None = None, created_by: str | None = None
) -> str:
    """Return the thread in which a message continues a run: the run's own, or a fork of it if other messages followed.

    The lock keeps other messages from following the run until this one does. A fork is made by the same transaction as
    its first run, so that none is left behind by a refusal, a repetition or a crash.

    Args:
        connection: In the transaction that inserts the message's run.
        label: Of a fork that is made in any case.
        created_by: Of a fork: the API key of the request.

    Raises:
        NotFound: There is no such run.
        Gone: Its thread was deleted.
        Conflict: The run has not ended, or left no turn; or another thread has the label.
    """
    found = await ledger.find_continued(connection, tenant_id, run_id)
    if found is None:
        raise missing("run", run_id)
    if found["status"] not in ENDED_RUNS or found["turn_id"] is None:
        raise Conflict(
            f"Run {run_id!r} is {found['status']}, and has no turn to continue from. Wait for its end.",
            status=found["status"],
        )
    thread_id, turn_id = found["thread_id"], found["turn_id"]
    busy = await ledger.lock_thread(connection, tenant_id, thread_id)
    if label is None and busy is None and await ledger.find_head(connection, tenant_id, thread_id) == turn_id:
        return thread_id
    fork = await fork_thread(connection, tenant_id, thread_id, turn_id=turn_id, label=label, created_by=created_by)
    return fork.id


def _follow(tx: UnitOfWork, accepted: Accepted) -> None:
    """Say what follows the commit of an accepted message."""
    if accepted.replayed:
        return
    if accepted.interrupted_run_id is not None:
        tx.interrupt(accepted.interrupted_run_id)
    if accepted.start_at is None:
        tx.ring([accepted.doorbell])


def _with_interrupted(accepted: Accepted, interrupted: str | None) -> Accepted:
    return accepted if interrupted is None else replace(accepted, interrupted_run_id=interrupted)
