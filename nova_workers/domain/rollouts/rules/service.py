"""Rollouts: how they begin, advance and end, and what is sent to people and webhooks then.

The sweep judges the guardrails of each open rollout, and begins the steps that are due. Any number of processes may
sweep at once: each change is made under the agent's lock, and guarded by the step that it was decided at.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import structlog

from nova_workers.base.errors import Conflict, Gone, InvalidInput, NotFound
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import OPEN_ROLLOUTS, GuardrailMeasure
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.contracts.http.rollouts import (
    RolloutAdvance,
    RolloutBreach,
    RolloutLook,
    RolloutStart,
    RolloutStop,
    RolloutView,
)
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.agents.rules.service import PERSON, Agents
from nova_workers.domain.agents.sql import records as agents
from nova_workers.domain.delivery.sql.announcements import announce
from nova_workers.domain.rollouts.rules.guardrails import (
    BASELINE_PER_VALUE,
    LOOKS,
    Guardrail,
    judge_look,
)
from nova_workers.domain.rollouts.rules.shadows import begin_shadow, feed_shadow
from nova_workers.domain.rollouts.rules.wording import describe_breach, describe_change
from nova_workers.domain.rollouts.sql import observations
from nova_workers.domain.rollouts.sql import records as ledger
from nova_workers.domain.rollouts.sql.records import OpenRollout
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_SWEEP: Final = "rollout-sweep"
"""The actor of what happens without a person, in the audit log."""
_DELIVERED: Final = ("version", "baseline_version", "status", "step", "percent", "reason")


async def start_rollout(
    work: Work,
    service: Agents,
    tenant_id: str,
    agent_id: str,
    start: RolloutStart,
    *,
    rights: AuthorRights,
    default_engine: str,
) -> RolloutView:
    """Begin a rollout of a saved version.

    Raises:
        NotFound: There is no such agent, or it never had the version.
        Gone: The agent was deleted.
        InvalidInput: The version is the current one, names something that no longer exists, or needs other code of
            users; or it is to have a shadow, and its engine cannot replay tool calls.
        Forbidden: The version has a right that its author may not give.
        Conflict: The agent has an open rollout, or is being renamed.
    """
    async with work.begin() as tx:
        agent = await agents.lock_agent(tx.connection, tenant_id, agent_id)
        candidate = await agents.get_version(tx.connection, tenant_id, agent_id, start.version)
        if candidate.version == agent.version:
            raise InvalidInput(
                f"version: {start.version} is the current version of agent {agent_id!r}; save another one first.",
                field="version",
                status=422,
            )
        await service.check_within(tx.connection, tenant_id, agent.spec, candidate.spec, actor=PERSON, rights=rights)
        same_needs = await ledger.have_same_needs(
            tx.connection, tenant_id, agent_id, version=candidate.version, baseline_version=agent.version
        )
        if not same_needs:
            raise InvalidInput(
                f"version: version {start.version} needs other projects than version {agent.version}. The same workers "
                "must be able to execute both.",
                field="version",
                status=422,
            )
        rollout = await ledger.insert_rollout(tx.connection, tenant_id, agent_id, start, baseline_version=agent.version)
        if rollout is None:
            await agents.require_no_rollout(tx.connection, tenant_id, agent_id)
            raise Conflict(f"Agent {agent_id!r} has an open rollout.", agent_id=agent_id)
        if start.shadow is not None:
            rollout = await begin_shadow(tx.connection, tenant_id, rollout, start.shadow, default_engine=default_engine)
        await _announce(tx, tenant_id, rollout)
        return rollout


async def advance_rollout(work: Work, tenant_id: str, agent_id: str, wanted: RolloutAdvance) -> RolloutView:
    """Begin the next step of a rollout now; after the last one, make the candidate the current version.

    Raises:
        NotFound: There is no such agent.
        Gone: The agent was deleted.
        Conflict: It has no open rollout, or one at another step.
    """
    async with work.begin() as tx:
        rollout = await _lock(tx.connection, tenant_id, agent_id)
        if rollout.step != wanted.step:
            raise Conflict(
                f"The rollout is at step {rollout.step}, and not at {wanted.step}. Look at it, then advance it.",
                step=rollout.step,
            )
        return await _advance(tx, tenant_id, rollout)


async def stop_rollout(work: Work, tenant_id: str, agent_id: str, stop: RolloutStop) -> RolloutView:
    """Stop a rollout: each thread continues with the current version at its next turn.

    Raises:
        NotFound, Gone: As `advance_rollout`.
        Conflict: It has no open rollout.
    """
    async with work.begin() as tx:
        rollout = await _lock(tx.connection, tenant_id, agent_id)
        return await _end(tx, tenant_id, rollout, promoted=False, reason=stop.reason or "A person stopped it.")


class RolloutSweep:
    """Judges open rollouts, and begins the steps that are due."""

    def __init__(self, work: Work) -> None:
        """Take what begins units of work."""
        self._work = work

    async def sweep(self) -> None:
        """Settle each open rollout of all tenants. One that cannot be settled does not hold up the others."""
        async with self._work.database.connection() as connection:
            rollouts = await ledger.list_open(connection)
        for tenant_id, agent_id in rollouts:
            try:
                with acting_as(Actor("command", _SWEEP, tenant_id)):
                    await self._settle(tenant_id, agent_id)
                    await self._feed(tenant_id, agent_id)
            except Exception:
                _log.exception("rollout.not_settled", tenant_id=tenant_id, agent_id=agent_id)

    async def _feed(self, tenant_id: str, agent_id: str) -> None:
        """Feed the shadow, in a unit of its own: the agent is not locked meanwhile."""
        async with self._work.begin() as tx:
            rollout = await ledger.find_rollout(tx.connection, tenant_id, agent_id)
            if rollout is not None and rollout.status in OPEN_ROLLOUTS:
                await feed_shadow(tx.connection, tenant_id, rollout)

    async def _settle(self, tenant_id: str, agent_id: str) -> None:
        async with self._work.begin() as tx:
            try:
                await agents.lock_agent(tx.connection, tenant_id, agent_id)
            except (NotFound, Gone):
                return
            rollout = await ledger.lock_open(tx.connection, tenant_id, agent_id)
            if rollout is None:
                return
            values = await observations.count_values(tx.connection, tenant_id, rollout)
            breach = await _judge(tx.connection, tenant_id, rollout, values)
            if breach is not None:
                reason = describe_breach(rollout, breach)
                await _end(tx, tenant_id, rollout, promoted=False, reason=reason, breach=breach)
            elif rollout.is_due and values["failure"] >= rollout.min_runs:
                if rollout.steps[rollout.step].approval:
                    waiting = await ledger.await_approval(tx.connection, tenant_id, rollout)
                    if waiting is not None:
                        await _announce(tx, tenant_id, waiting)
                else:
                    await _advance(tx, tenant_id, rollout)


async def _judge(
    connection: Connection, tenant_id: str, rollout: OpenRollout, values: dict[GuardrailMeasure, int]
) -> RolloutBreach | None:
    """Judge the looks that are due, each once, and record them. Return the first breach."""
    guardrails = [Guardrail(each.measure, each.tolerance) for each in rollout.guardrails]
    looks = dict(rollout.looks)
    found: dict[str, RolloutLook] = {}
    breach: RolloutBreach | None = None
    for guardrail, declared in zip(guardrails, rollout.guardrails, strict=True):
        measure = declared.measure
        for look in [at for at in LOOKS if looks.get(measure, 0) < at <= values[measure]]:
            candidate, until = await observations.first_values(connection, tenant_id, rollout, measure, limit=look)
            if until is None or len(candidate) < look:
                break
            baseline = await observations.values_before(
                connection, tenant_id, rollout, measure, until=until, limit=BASELINE_PER_VALUE * look
            )
            judged = judge_look(guardrail, guardrails, candidate, baseline)
            looks[measure] = look
            if judged is not None:
                found[measure] = RolloutLook(**asdict(judged))
                if judged.is_breach:
                    breach = RolloutBreach(**asdict(judged))
                    break
        if breach is not None:
            break
    if looks != rollout.looks:
        await ledger.record_looks(connection, tenant_id, rollout.id, looks, found)
    return breach


async def _lock(connection: Connection, tenant_id: str, agent_id: str) -> OpenRollout:
    await agents.lock_agent(connection, tenant_id, agent_id)
    rollout = await ledger.lock_open(connection, tenant_id, agent_id)
    if rollout is None:
        raise Conflict(f"Agent {agent_id!r} has no open rollout.", agent_id=agent_id)
    return rollout


async def _advance(tx: UnitOfWork, tenant_id: str, rollout: OpenRollout) -> RolloutView:
    """Begin the next step of a locked rollout, or promote its candidate."""
    if rollout.step + 1 < len(rollout.steps):
        changed = await ledger.advance(tx.connection, tenant_id, rollout)
        assert changed is not None  # noqa: S101 - the row is locked
        await _announce(tx, tenant_id, changed)
        return changed
    is_promoted = await agents.promote_version(
        tx.connection, tenant_id, rollout.agent_id, rollout.version, expected=rollout.baseline_version
    )
    reason = (
        "All of its steps have ended."
        if is_promoted
        else f"Version {rollout.baseline_version}, with which it was compared, is no longer the current one."
    )
    return await _end(tx, tenant_id, rollout, promoted=is_promoted, reason=reason)


async def _end(
    tx: UnitOfWork,
    tenant_id: str,
    rollout: OpenRollout,
    *,
    promoted: bool,
    reason: str,
    breach: RolloutBreach | None = None,
) -> RolloutView:
    ended = await ledger.end(tx.connection, tenant_id, rollout.id, promoted=promoted, reason=reason, breach=breach)
    assert ended is not None  # noqa: S101 - the row is locked
    await _announce(tx, tenant_id, ended)
    return ended


async def _announce(tx: UnitOfWork, tenant_id: str, rollout: RolloutView) -> None:
    """Put a change into the outbox for each webhook that subscribes, and into the inbox if a person should look."""
    payload = {
        "rollout_id": rollout.id,
        **{name: getattr(rollout, name) for name in _DELIVERED},
        "breach": None if rollout.breach is None else rollout.breach.model_dump(mode="json"),
    }
    event = NewDelivery(
        id=new_id("dlv"),
        tenant_id=tenant_id,
        kind="rollout_changed",
        target=INBOX,
        payload=payload,
        agent_id=rollout.agent_id,
    )
    if await announce(tx.connection, event, notice=describe_change(rollout)):
        tx.ring_deliveries()
