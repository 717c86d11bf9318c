"""The `memory` capability: facts that all agents of a tenant share."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.http.memories import MemoryText
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.memories.sql import delete_memory, list_memories, save_memory
from nova_workers.ledger.database import Database

_MAX_LISTED = 100

_MemoryId = Annotated[str, StringConstraints(pattern=r"^mem_[0-9A-Z]{26}$")]


class _Save(ToolInput):
    content: Annotated[MemoryText, Field(description="One fact, in a sentence that makes sense on its own.")]


class _List(ToolInput):
    contains: Annotated[MemoryText | None, Field(description="Only memories with these words.")] = None
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED, description="Most memories to return.")] = 50
    before: Annotated[_MemoryId | None, Field(description="Only memories older than this one; to see more.")] = None


class _Delete(ToolInput):
    memory_id: Annotated[_MemoryId, Field(description="As memory_list and memory_save give it.")]


class _MemoryTools:
    """A fact belongs to the tenant: every agent that has the capability sees it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="memory_save",
                description=(
                    "Remember a fact for later conversations, yours and those of other agents. "
                    "Saving the same words again changes nothing."
                ),
                input=_Save,
                run=self._save,
                idempotent=True,
            ),
            ToolDeclaration(
                name="memory_list",
                description="Look at what is remembered, newest first.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="memory_delete",
                description="Forget a fact that is wrong or no longer matters.",
                input=_Delete,
                run=self._delete,
                idempotent=True,
            ),
        )

    async def _save(self, context: CapabilityContext, given: _Save) -> str:
        async with self._database.connection() as connection:
            memory = await save_memory(connection, context.tenant_id, context.agent_id, given.content)
        return f"Saved as {memory.id}."

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        async with self._database.connection() as connection:
            memories = await list_memories(
                connection, context.tenant_id, limit=given.limit, contains=given.contains, before=given.before
            )
        if not memories:
            return "Nothing is remembered." if given.contains is None else f"Nothing with {given.contains!r}."
        lines = [f"{memory.id} ({memory.created_at:%Y-%m-%d}): {memory.content}" for memory in memories]
        if len(memories) == given.limit:
            lines.append(f"There may be more: ask with before={memories[-1].id}.")
        return "\n".join(lines)

    async def _delete(self, context: CapabilityContext, given: _Delete) -> str:
        async with self._database.connection() as connection:
            deleted = await delete_memory(connection, context.tenant_id, given.memory_id)
        if not deleted:
            raise ToolFailure(f"There is no memory {given.memory_id!r}. Was it deleted before?")
        return f"Deleted {given.memory_id}."


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "memory",
        "Facts that outlive a conversation, shared by all agents.",
        _MemoryTools(parts.database).declare(),
    )
