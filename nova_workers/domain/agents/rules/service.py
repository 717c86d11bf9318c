"""The only writer of agents, for people and for agents.

Every change is validated before it is written, creates a version with its author, and takes effect in runs that begin
after it: a run keeps the version of its first claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from nova_workers.base.errors import InvalidInput, too_many
from nova_workers.contracts.agents import AgentSpec, Ceilings
from nova_workers.contracts.http.wire import AgentPatch, AgentView
from nova_workers.domain.agents.rules.authors import Authored, AuthorRights, check_author, check_steers, holdings_of
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.rights import GrantChecks
from nova_workers.domain.agents.rules.rules import check_agent_id, check_engine, check_own_id, check_spec
from nova_workers.domain.agents.sql import records as ledger
from nova_workers.domain.agents.sql import renames
from nova_workers.domain.agents.sql.renames import Rename
from nova_workers.domain.runs.sql.cancel import withdraw_queued_of_agent
from nova_workers.domain.skills.rules.service import require_skills
from nova_workers.domain.skills.sql import hold_skills
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.database import Connection, Database

MAX_AGENTS = 1_000
"""Per tenant. Approximate: two concurrent creations may both pass the check."""

PERSON = "person"
"""The author of a version that was written through the API."""

Edit = Callable[[Connection, AgentView], Awaitable[AgentSpec]]
"""Returns the new configuration from the agent's current one, under its lock."""

Permit = Callable[[Connection, AgentView], Awaitable[None]]
"""Raises if the agent must not be deleted."""


_NO_RIGHTS: Final = AuthorRights()


@dataclass(slots=True)
class Surroundings:
    """What the rules read beside an agent that is written, once for many agents of one transaction.

    Attributes:
        skills: Those that exist of all that the agents name. Held until the transaction ends.
        ceilings: Of the tenant.
        agents: How many the tenant has.
    """

    skills: Collection[str]
    ceilings: Ceilings | None
    agents: int


class Agents:
    """Creates and changes the agents of all tenants.

    `actor` is ``person``, or the id of the agent that acts.
    """

    def __init__(self, database: Database, grants: GrantChecks, ceilings: CeilingRules) -> None:
        """Keep what the rules need.

        Args:
            database: The ledger.
            grants: Checks grants of capabilities.
            ceilings: Checks what the operator permits a tenant's agents at most.
        """
        self._database = database
        self._grants = grants
        self._ceilings = ceilings

    async def create(
        self, tenant_id: str, agent_id: str, spec: AgentSpec, *, actor: str, rights: AuthorRights = _NO_RIGHTS
    ) -> AgentView:
        """Create an agent.

        Args:
            rights: What the author may give it beside, if that is a person; an agent gives what it has itself. The same
                below.

        Raises:
            InvalidInput: Its configuration is invalid; names the field.
            Forbidden: It exceeds a ceiling of the tenant, or the author may not give it what it has.
            Conflict: The id is taken.
            LimitExceeded: The tenant has its maximum of agents.
        """
        async with self._database.transaction() as connection:
            return await self.create_within(connection, tenant_id, agent_id, spec, actor=actor, rights=rights)

    async def create_within(
        self,
        connection: Connection,
        tenant_id: str,
        agent_id: str,
        spec: AgentSpec,
        *,
        actor: str,
        rights: AuthorRights,
        around: Surroundings | None = None,
    ) -> AgentView:
        """Create an agent in its caller's transaction, as `create` does.

        Args:
            around: What was read for all that the transaction writes; None reads it for this one. The same below.
        """
        check_agent_id(agent_id)
        check_own_id(agent_id)
        around = around or await self.surroundings(connection, tenant_id, spec.skills)
        await self._check(connection, tenant_id, spec, around=around)
        await self._check_author(connection, tenant_id, actor, rights, before=None, after=spec)
        if around.agents >= MAX_AGENTS:
            raise too_many(MAX_AGENTS, "agents", "Delete unused ones.")
        created = await ledger.create_agent(connection, tenant_id, agent_id, spec, created_by=actor)
        around.agents += 1
        return created

    async def surroundings(self, connection: Connection, tenant_id: str, skills: Sequence[str]) -> Surroundings:
        """Read what is around agents that name these skills, and hold the skills."""
        return Surroundings(
            await hold_skills(connection, tenant_id, skills) if skills else (),
            await get_ceilings(connection, tenant_id),
            await ledger.count_agents(connection, tenant_id),
        )

    async def replace(
        self,
        tenant_id: str,
        agent_id: str,
        spec: AgentSpec,
        *,
        actor: str,
        rights: AuthorRights = _NO_RIGHTS,
        expected: int | None = None,
    ) -> AgentView:
        """Give an agent a whole new configuration. An equal one makes no version.

        Raises:
            InvalidInput: The configuration is invalid; names the field.
            Forbidden: As `create`.
            NotFound, Gone: The agent never existed, or was deleted.
            VersionMismatch: Its newest version is not `expected`.
        """
        async with self._database.transaction() as connection:
            return await self.replace_within(
                connection, tenant_id, agent_id, spec, actor=actor, rights=rights, expected=expected
            )

    async def replace_within(
        self,
        connection: Connection,
        tenant_id: str,
        agent_id: str,
        spec: AgentSpec,
        *,
        actor: str,
        rights: AuthorRights,
        expected: int | None,
        around: Surroundings | None = None,
    ) -> AgentView:
        """Give an agent a whole new configuration in its caller's transaction, as `replace` does."""
        # The agent is locked before its skills, as by all that lock both.
        before = await ledger.lock_agent(connection, tenant_id, agent_id)
        await self._check(connection, tenant_id, spec, around=around)
        await self._check_author(connection, tenant_id, actor, rights, before=before.spec, after=spec)
        return await ledger.replace_agent(connection, tenant_id, agent_id, spec, created_by=actor, expected=expected)

    async def patch(
        self,
        tenant_id: str,
        agent_id: str,
        patch: AgentPatch,
        *,
        actor: str,
        rights: AuthorRights = _NO_RIGHTS,
        expected: int | None = None,
    ) -> AgentView:
        """Change the fields that `patch` sets, each as a whole.

        Raises:
            InvalidInput, Forbidden, NotFound, Gone, VersionMismatch: As `replace`.
        """

        async def merge(_: Connection, agent: AgentView) -> AgentSpec:
            return _patched(agent.spec, patch)

        return await self.edit(tenant_id, agent_id, merge, actor=actor, rights=rights, expected=expected)

    async def edit(
        self,
        tenant_id: str,
        agent_id: str,
        edit: Edit,
        *,
        actor: str,
        rights: AuthorRights = _NO_RIGHTS,
        expected: int | None = None,
    ) -> AgentView:
        """Change an agent depending on its current configuration. Of two concurrent edits the second sees the first.

        The engine, capabilities and skills are checked only if the edit changes them: one that was removed from the
        fleet since does not prevent a change of another field.

        Raises:
            InvalidInput, Forbidden, NotFound, Gone, VersionMismatch: As `replace`; and what `edit` raises.
        """
        async with self._database.transaction() as connection:
            agent = await ledger.lock_agent(connection, tenant_id, agent_id)
            ledger.expect_version(agent, expected)
            spec = await edit(connection, agent)
            await self._check(connection, tenant_id, spec, before=agent.spec)
            await self._check_author(connection, tenant_id, actor, rights, before=agent.spec, after=spec)
            return await ledger.replace_agent(connection, tenant_id, agent_id, spec, created_by=actor)

    async def rollback(
        self, tenant_id: str, agent_id: str, version: int, *, actor: str, rights: AuthorRights = _NO_RIGHTS
    ) -> AgentView:
        """Make an earlier version's configuration the newest again, as a version of its own.

        Raises:
            InvalidInput: It names something that no longer exists; names the field.
            Forbidden: As `create`.
            NotFound, Gone: The agent never existed, or was deleted; or it never had that version.
        """
        async with self._database.transaction() as connection:
            earlier = await ledger.get_version(connection, tenant_id, agent_id, version)
            before = await ledger.lock_agent(connection, tenant_id, agent_id)
            await self._check(connection, tenant_id, earlier.spec)
            await self._check_author(connection, tenant_id, actor, rights, before=before.spec, after=earlier.spec)
            return await ledger.replace_agent(connection, tenant_id, agent_id, earlier.spec, created_by=actor)

    async def save_version(
        self, tenant_id: str, agent_id: str, patch: AgentPatch, *, actor: str, rights: AuthorRights = _NO_RIGHTS
    ) -> AgentView:
        """Save a version that is not current: the current one, with the fields that `patch` sets. For a rollout.

        Raises:
            InvalidInput, Forbidden, NotFound, Gone: As `patch`.
        """
        async with self._database.transaction() as connection:
            agent = await ledger.lock_agent(connection, tenant_id, agent_id)
            spec = _patched(agent.spec, patch)
            await self.check_within(connection, tenant_id, agent.spec, spec, actor=actor, rights=rights)
            return await ledger.save_version(connection, tenant_id, agent_id, spec, created_by=actor)

    async def check_within(
        self,
        connection: Connection,
        tenant_id: str,
        before: AgentSpec,
        after: AgentSpec,
        *,
        actor: str,
        rights: AuthorRights,
    ) -> None:
        """Check a configuration of a locked agent, and that its author may give it, in the caller's transaction.

        Raises:
            InvalidInput: It names something that does not exist; names the field.
            Forbidden: As `create`.
        """
        await self._check(connection, tenant_id, after, before=before)
        await self._check_author(connection, tenant_id, actor, rights, before=before, after=after)

    async def delete(self, tenant_id: str, agent_id: str, permit: Permit | None = None) -> None:
        """Delete an agent, its triggers and its queued runs; park its tasks. The rest stays readable.

        A new agent may take the id; it gets no runs, triggers or tasks of this one. A run that has begun keeps its
        configuration.

        Raises:
            NotFound, Gone: The agent never existed, or was deleted; and what `permit` raises.
            Conflict: It is being renamed.
        """
        async with self._database.transaction() as connection:
            await self.delete_within(connection, tenant_id, agent_id, permit)

    async def delete_within(
        self, connection: Connection, tenant_id: str, agent_id: str, permit: Permit | None = None
    ) -> None:
        """Delete an agent in its caller's transaction, as `delete` does."""
        agent = await ledger.lock_agent(connection, tenant_id, agent_id)
        await renames.require_settled(connection, tenant_id, agent_id)
        if permit is not None:
            await permit(connection, agent)
        await ledger.delete_agent(connection, tenant_id, agent_id)
        await withdraw_queued_of_agent(connection, tenant_id, agent_id)

    async def begin_rename(
        self,
        tenant_id: str,
        agent_id: str,
        to_id: str,
        *,
        actor: str,
        rights: AuthorRights = _NO_RIGHTS,
        expected: int | None = None,
    ) -> Rename:
        """Give an agent another id. Its history follows in batches (`upkeep.rules.agent_moves`); no run starts before.

        Repeating it changes nothing, and returns the state.

        Raises:
            InvalidInput: The new id cannot be.
            Forbidden: The agent has a right that the author lacks: its prompt has its id.
            NotFound, Gone: There is no such agent, or no longer.
            Conflict: The new id is taken, or was another agent's; or the agent has running runs, or is being renamed.
            VersionMismatch: Its newest version is not `expected`.
        """
        async with self._database.transaction() as connection:
            return await self.begin_rename_within(
                connection, tenant_id, agent_id, to_id, actor=actor, rights=rights, expected=expected
            )

    async def begin_rename_within(
        self,
        connection: Connection,
        tenant_id: str,
        agent_id: str,
        to_id: str,
        *,
        actor: str,
        rights: AuthorRights,
        expected: int | None,
    ) -> Rename:
        """Give an agent another id in its caller's transaction, as `begin_rename` does."""
        check_agent_id(to_id)
        check_own_id(to_id)
        if to_id == agent_id:
            raise InvalidInput(f"to: agent {agent_id!r} has this id; give another one.", field="to")
        await renames.lock_renames(connection, tenant_id)
        done = await renames.rename_of(connection, tenant_id, agent_id)
        if done is not None and done.to_id == to_id:
            return done
        agent = await ledger.lock_agent(connection, tenant_id, agent_id)
        ledger.expect_version(agent, expected)
        await ledger.require_no_rollout(connection, tenant_id, agent_id)
        held = holdings_of(agent.spec, self._grants)
        check_steers(rights, held, field="to", what=f"the agent {agent_id!r}")
        rename = Rename(tenant_id, agent_id, to_id)
        await renames.begin_rename(connection, rename, created_by=actor)
        return rename

    async def get(self, tenant_id: str, agent_id: str) -> AgentView:
        """Return an agent's current configuration.

        Raises:
            NotFound, Gone: The agent never existed, or was deleted.
        """
        async with self._database.connection() as connection:
            return await ledger.get_agent(connection, tenant_id, agent_id)

    async def list(self, tenant_id: str, *, after: str | None, limit: int) -> Sequence[AgentView]:
        """Return agents by id, those after `after`."""
        async with self._database.connection() as connection:
            return await ledger.list_agents(connection, tenant_id, after=after, limit=limit)

    async def check(self, tenant_id: str, spec: AgentSpec) -> None:
        """Check a configuration as a save does, beside the rights of its author.

        Raises:
            InvalidInput: A value is invalid; names the field.
        """
        async with self._database.connection() as connection:
            await self._check(connection, tenant_id, spec)

    async def _check(
        self,
        connection: Connection,
        tenant_id: str,
        spec: AgentSpec,
        *,
        before: AgentSpec | None = None,
        around: Surroundings | None = None,
    ) -> None:
        check_spec(spec)
        if before is None or spec.engine != before.engine:
            check_engine(spec.engine)
        if before is None or (spec.capabilities, spec.subagents) != (before.capabilities, before.subagents):
            self._grants.validate(spec)
        if around is None or any(name not in around.skills for name in spec.skills):
            await require_skills(connection, tenant_id, spec.skills, kept=() if before is None else before.skills)
        ceilings = await get_ceilings(connection, tenant_id) if around is None else around.ceilings
        self._ceilings.check(tenant_id, spec, ceilings, grants=self._grants)

    async def _check_author(
        self,
        connection: Connection,
        tenant_id: str,
        actor: str,
        rights: AuthorRights,
        *,
        before: AgentSpec | None,
        after: AgentSpec,
    ) -> None:
        if actor != PERSON:
            # An agent gives what it has as it is now, not what was taken from it meanwhile.
            author = await ledger.get_agent(connection, tenant_id, actor)
            rights = AuthorRights.of_agent(holdings_of(author.spec, self._grants))
        check_author(rights, Authored(after, before, self._grants))


def _patched(spec: AgentSpec, patch: AgentPatch) -> AgentSpec:
    return spec.model_copy(update={field: getattr(patch, field) for field in patch.model_fields_set})
