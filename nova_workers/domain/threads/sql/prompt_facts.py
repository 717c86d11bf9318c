"""Reads what a run's prompt needs, in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nova_workers.ledger.database import Connection

# The newest memories that fit, oldest first, so that a new memory changes only the end of the prompt. One extra row
# shows that there are more.
_FACTS = """
SELECT (SELECT jsonb_agg(CASE WHEN fits THEN content END ORDER BY id)
          FROM (SELECT id, content,
                       row_number() OVER newest <= :memories
                       AND sum(char_length(content)) OVER newest <= :memory_chars AS fits
                  FROM (SELECT id, content FROM memories WHERE tenant_id = :tenant_id
                         ORDER BY id DESC LIMIT :memories + 1) few
                WINDOW newest AS (ORDER BY id DESC)) ranked
         WHERE :memories > 0) AS memories,
       (SELECT jsonb_object_agg(name, description)
          FROM skills
         WHERE tenant_id = :tenant_id AND name = ANY(:skills::text[])) AS skills
"""


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """Memories and skills for a prompt.

    Attributes:
        memories: The newest facts, oldest of them first.
        more_memories: Whether there are older ones.
        skills: Descriptions of skills by name.
    """

    memories: tuple[str, ...] = ()
    more_memories: bool = False
    skills: Mapping[str, str] = field(default_factory=dict[str, str])


async def load_prompt_facts(
    connection: Connection, tenant_id: str, *, memories: int, memory_chars: int, skills: Sequence[str]
) -> PromptFacts:
    """Return the facts that a prompt needs.

    Args:
        memories: Most facts; 0 for none.
        memory_chars: Most characters in total.
        skills: Names; unknown ones are left out.
    """
    row = await connection.fetchrow(
        _FACTS, tenant_id=tenant_id, memories=memories, memory_chars=memory_chars, skills=list(skills)
    )
    found: list[str | None] = [] if row is None else row["memories"] or []
    shown = tuple(fact for fact in found if fact is not None)
    return PromptFacts(shown, len(shown) < len(found), {} if row is None else row["skills"] or {})
