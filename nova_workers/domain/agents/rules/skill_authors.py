"""Writes skills: their text is a part of what the agents do that have them."""

from __future__ import annotations

from nova_workers.contracts.skills import SkillDetail, SkillPut
from nova_workers.domain.agents.rules.authors import AuthorRights, check_steers, holdings_of
from nova_workers.domain.agents.rules.rights import GrantChecks
from nova_workers.domain.skills.rules.format import decode_files
from nova_workers.domain.skills.rules.service import save_skill
from nova_workers.domain.skills.sql import specs_with_skills
from nova_workers.ledger.database import Connection, Database


async def put_skill(
    database: Database, tenant_id: str, name: str, given: SkillPut, *, rights: AuthorRights, grants: GrantChecks
) -> SkillDetail:
    """Add a skill, or replace it whole.

    Args:
        database: The ledger.
        name: The skill's name.
        given: The skill.
        rights: Of the author.
        grants: Says which secrets agents use.

    Raises:
        InvalidInput: See `save_skill`.
        Forbidden: An agent that has the skill has a right that the author lacks.
        LimitExceeded: The tenant has its maximum of skills.
    """
    async with database.transaction() as connection:
        return await put_skill_within(connection, tenant_id, name, given, rights=rights, grants=grants)


async def put_skill_within(
    connection: Connection, tenant_id: str, name: str, given: SkillPut, *, rights: AuthorRights, grants: GrantChecks
) -> SkillDetail:
    """Add a skill in its caller's transaction, or replace it whole, as `put_skill` does."""
    saved = await save_skill(connection, tenant_id, name, given.skill_md, decode_files(given.files))
    # After the write, which waits for changes of agents that hold the skill. A refusal rolls it back.
    for agent_id, spec in (await specs_with_skills(connection, tenant_id, [name])).items():
        check_steers(rights, holdings_of(spec, grants), field="skill_md", what=f"the agent {agent_id!r}")
    return saved
