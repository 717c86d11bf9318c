"""Feedback: on which runs it may be given, and who is notified of it."""

from __future__ import annotations

from nova_workers.base.errors import Conflict, InvalidInput, existing, missing, too_many
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import FeedbackSource
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.contracts.http.feedback import MAX_FEEDBACK_PER_RUN, FeedbackGive, FeedbackView
from nova_workers.domain.delivery.sql.announcements import announce
from nova_workers.domain.feedback import sql as ledger
from nova_workers.domain.feedback.sql import Giver, RatedRun
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import UnitOfWork, Work

_DELIVERED = ("step", "agent_version", "name", "score", "label", "comment", "source", "author")


async def give_feedback(work: Work, giver: Giver, run_id: str, given: FeedbackGive) -> FeedbackView:
    """Add what an author says of a run, or replace what it said before. Repeating it changes nothing.

    Raises:
        NotFound: There is no such run.
        Conflict: It has not begun, or its message joined another run.
        InvalidInput: It has no such step.
        LimitExceeded: It has its maximum of feedback.
    """
    async with work.begin() as tx:
        run = existing(await ledger.find_rated_run(tx.connection, giver.tenant_id, run_id), "run", run_id)
        _check(run, run_id, given.step)
        new = await ledger.put_feedback(tx.connection, giver, run_id, run, given, at_most=MAX_FEEDBACK_PER_RUN)
        if new is not None:
            await _deliver(tx, giver.tenant_id, new)
            return new
        same = await ledger.find_own_feedback(tx.connection, giver, run_id, given)
    if same is None:
        raise too_many(MAX_FEEDBACK_PER_RUN, f"pieces of feedback on run {run_id!r}", "Delete some of it.")
    return same


async def take_back(database: Database, tenant_id: str, feedback_id: str, *, of_key: str | None) -> None:
    """Delete feedback.

    Args:
        database: The ledger.
        of_key: The key that may delete only what it gave; None may delete all.

    Raises:
        NotFound: There is no such feedback, or another key gave it.
    """
    async with database.connection() as connection:
        if not await ledger.delete_feedback(connection, tenant_id, feedback_id, of_key=of_key):
            raise missing("feedback", feedback_id, "Was it deleted?")


def source_of(given: FeedbackSource | None, *, may_run: bool) -> FeedbackSource | None:
    """Return the source of feedback; None if the key may not give it.

    Args:
        given: What the request says.
        may_run: Whether the key has the scope `runs`. Without it, it speaks for end users.
    """
    if may_run:
        return given or "person"
    return "user" if given in (None, "user") else None


def _check(run: RatedRun, run_id: str, step: int | None) -> None:
    if run.merged_into is not None:
        raise Conflict(
            f"The message of run {run_id!r} joined run {run.merged_into!r}: give the feedback on that one.",
            run_id=run_id,
            merged_into=run.merged_into,
        )
    if not run.has_begun:
        raise Conflict(f"Run {run_id!r} has not begun, so there is nothing to judge yet.", run_id=run_id)
    if step is not None and step >= run.steps:
        raise InvalidInput(
            f"step: run {run_id!r} has {run.steps} steps, counted from 0, and none with the index {step}.",
            field="step",
            status=422,
        )


async def _deliver(tx: UnitOfWork, tenant_id: str, feedback: FeedbackView) -> None:
    """Put feedback into the outbox for each webhook that subscribes."""
    event = NewDelivery(
        id=new_id("dlv"),
        tenant_id=tenant_id,
        kind="feedback_given",
        target=INBOX,
        payload={"feedback_id": feedback.id, **{name: getattr(feedback, name) for name in _DELIVERED}},
        agent_id=feedback.agent_id,
        thread_id=feedback.thread_id,
        run_id=feedback.run_id,
    )
    if await announce(tx.connection, event):
        tx.ring_deliveries()
