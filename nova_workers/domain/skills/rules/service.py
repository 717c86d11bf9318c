"""Skills: the tenant's library, their assignment to agents, and their section of the prompt."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.contracts.engine import TrustLevel
from nova_workers.contracts.skills import SkillDetail, SkillFile
from nova_workers.domain.skills import sql as ledger
from nova_workers.domain.skills.rules.format import check_files, parse_skill_md
from nova_workers.ledger.database import Connection, Database

_NAMED_AGENTS = 5
_FILE_ENGINE = "claude_agent"


def loads_on_demand(engine: str, trust: TrustLevel) -> bool:
    """Return whether an agent loads skills with a tool; otherwise it has them as files where its engine expects them.

    A sandbox has no files, whatever its engine.
    """
    return engine != _FILE_ENGINE or trust == "sandbox"


async def save_skill(
    connection: Connection, tenant_id: str, name: str, skill_md: str, files: Sequence[SkillFile]
) -> SkillDetail:
    """Add a skill, or replace it whole. Must be called inside a transaction.

    Raises:
        InvalidInput: SKILL.md or a file has the wrong form, or the front matter has another name.
        LimitExceeded: The tenant has its maximum of skills.
    """
    front, body = parse_skill_md(skill_md)
    if front.name != name:
        raise InvalidInput(
            f"skill_md.name: SKILL.md calls the skill {front.name!r}, but its directory is called {name!r}; "
            "they are the same.",
            field="skill_md.name",
        )
    return await ledger.put_skill(connection, tenant_id, front, skill_md, body, check_files(files))


async def remove_skill(database: Database, tenant_id: str, name: str) -> None:
    """Remove a skill that no agent has.

    Raises:
        NotFound: There is no such skill.
        Conflict: It is assigned to an agent.
    """
    async with database.transaction() as connection:
        await remove_skill_within(connection, tenant_id, name)


async def remove_skill_within(connection: Connection, tenant_id: str, name: str) -> None:
    """Remove a skill that no agent has in its caller's transaction, as `remove_skill` does."""
    # First, since it waits for changes of agents that hold the skill. A conflict rolls it back.
    await ledger.delete_skill(connection, tenant_id, name)
    agents = await ledger.agents_with_skill(connection, tenant_id, name, limit=_NAMED_AGENTS + 1)
    if agents:
        named = ", ".join(agents[:_NAMED_AGENTS]) + (" and others" if len(agents) > _NAMED_AGENTS else "")
        raise Conflict(f"Skill {name!r} is assigned to {named}; take it from them first.", skill=name, agents=agents)


async def require_skills(
    connection: Connection, tenant_id: str, names: Sequence[str], *, kept: Collection[str] = ()
) -> None:
    """Check the skills of an agent that is about to be written, and hold them until the transaction ends.

    A skill is thus written before the agent is, or after it and by an author with the rights that the agent has then
    (see `agents.rules.skill_authors`).

    Args:
        connection: In the transaction that writes the agent.
        names: All its skills.
        kept: Those that it has already. That one of them was removed prevents no change of the agent.

    Raises:
        InvalidInput: There is no such skill; the field is ``skills.0`` for the first of `names`.
    """
    if not names:
        return
    known = await ledger.hold_skills(connection, tenant_id, names)
    for at, name in enumerate(names):
        if name not in known and name not in kept:
            raise InvalidInput(
                f"skills.{at}: there is no skill {name!r}. Add it with `nova skills add`, or leave it out.",
                field=f"skills.{at}",
            )


def skills_words(names: Sequence[str], known: Mapping[str, str]) -> str:
    """Return the section of the prompt about an agent's skills: a line for each, in order. Empty without any.

    For agents for which `loads_on_demand` is true; other engines describe skills to the model themselves.

    Args:
        names: The skills that are assigned.
        known: Descriptions by name; a skill that has gone is left out.
    """
    lines = [f"- {name}: {' '.join(known[name].split())}" for name in names if name in known]
    if not lines:
        return ""
    return "\n".join(
        ["You have skills. Before you do what one of them is about, load it with skill_load and follow it.", *lines]
    )
