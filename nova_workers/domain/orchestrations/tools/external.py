"""External masters: programs outside of the fleet that use a master's tools over HTTP.

Such a master has no run that could be suspended: a call that waits returns what it waits for, and the API asks again
(`receive`) when messages of the tree arrive. Each call has a key. A repeated call finds what the first one did, and the
messages that it received, so a reply that was lost is given again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import InvalidInput, OrchestrationError, missing
from nova_workers.base.validation import place_of
from nova_workers.base.vocabulary import AgentState
from nova_workers.contracts.http.orchestrations import MasterComplete, MasterTool, OrchestrationView
from nova_workers.contracts.orchestration import (
    TASK_COMPLETE,
    AgentDescriptor,
    CapabilityTools,
    OrchestrationLimits,
    OrchestrationPlace,
)
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, input_schema
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.rules.matching import Match, interrupted, match
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser
from nova_workers.domain.orchestrations.rules.routing import complete_agent, deliver
from nova_workers.domain.orchestrations.rules.unblocking import break_deadlocks
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.sql import activations, messages
from nova_workers.domain.orchestrations.sql.changes import changed_now
from nova_workers.domain.orchestrations.sql.external import end_wait, find_external_master, record_wait
from nova_workers.domain.orchestrations.sql.locking import LockedTree, lock_tree, lock_tree_of_external
from nova_workers.domain.orchestrations.sql.trees import get_orchestration
from nova_workers.domain.orchestrations.tools.children import child_tools
from nova_workers.domain.orchestrations.tools.conversation import conversation_tools
from nova_workers.domain.orchestrations.tools.experts import expert_tools
from nova_workers.domain.orchestrations.tools.intelligence import intelligence_tools
from nova_workers.domain.orchestrations.tools.observing import observing_tools
from nova_workers.domain.orchestrations.tools.seam import Declarations
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

_Form = TypeVar("_Form", bound=BaseModel)
_COMPLETES = "Declare the task complete, with a summary of the result. Children that still work are ended."
_CHILD_ONLY = frozenset({"ask_parent"})
_WAITING: tuple[AgentState, ...] = ("WAITING_FOR_CHILD", "WAITING_FOR_EXPERT")


@dataclass(frozen=True, slots=True)
class MasterAnswer:
    """The result of a call."""

    text: str
    failed: bool = False


class ExternalMasters:
    """Acts for external masters. One object per process."""

    def __init__(
        self,
        work: Work,
        models: ModelChooser,
        known: Callable[[], CapabilityTools],
        directory_of: Callable[[str, str], Path],
    ) -> None:
        self._work = work
        actions = AgentActions(work, models, known, directory_of=directory_of)
        views = AgentViews(work.database, models)
        declared: Declarations = (
            *conversation_tools(actions),
            *child_tools(actions),
            *expert_tools(actions, views),
            *observing_tools(views),
            *intelligence_tools(views),
        )
        self._tools = {tool.name: tool for tool in declared if tool.name not in _CHILD_ONLY}

    def describe(self) -> list[MasterTool]:
        """Return the tools of external masters."""
        described = [(tool.name, tool.description, tool.input) for tool in self._tools.values()]
        return [
            MasterTool(name=name, description=description, input_schema=input_schema(given))
            for name, description, given in (*described, (TASK_COMPLETE, _COMPLETES, MasterComplete))
        ]

    async def call(
        self, tenant_id: str, orchestration_id: str, tool: str, arguments: Mapping[str, Any], key: str
    ) -> MasterAnswer | AwaitMessages:
        """Call a tool; return its result, or what it waits for.

        Raises:
            NotFound: No such orchestration in this tenant, or no such tool.
            OrchestrationError: The master is not external, has ended, or the tool refuses.
            InvalidInput: The arguments have the wrong form.
        """
        if tool == TASK_COMPLETE:
            result = _given(tool, MasterComplete, arguments)
            await self.complete(tenant_id, orchestration_id, result.summary, result.artifacts)
            return MasterAnswer("The orchestration is complete.")
        declared = self._tools.get(tool)
        if declared is None:
            raise missing("tool", tool, f"There are: {', '.join((*self._tools, TASK_COMPLETE))}.")
        given = _given(tool, declared.input, arguments)
        async with self._work.database.connection() as connection:
            master = await find_external_master(connection, tenant_id, orchestration_id)
        reply = await declared.run(_context(master, key), given)
        if isinstance(reply, AwaitMessages):
            return reply
        await self._seen(master)
        return MasterAnswer(str(reply))

    async def receive(
        self, tenant_id: str, orchestration_id: str, request: AwaitMessages, key: str
    ) -> MasterAnswer | None:
        """Return the messages that a call waits for, once they are there; None while they are not.

        Until they are, the wait is recorded, so that cycles of waits are found.

        Raises:
            OrchestrationError: The master has ended.
        """
        async with self._work.begin() as tx:
            connection = tx.connection
            master = await find_external_master(connection, tenant_id, orchestration_id)
            tree = await lock_tree_of_external(connection, tenant_id, orchestration_id, run_id=master.run_id)
            before = await messages.delivered_to(connection, tree.id, master.id, key)
            found = match(request, before or await messages.pending(connection, [master.id]))
            if found is None and before:
                # It was woken with a question of a child that it did not wait for.
                found = interrupted(before[0])
            if found is not None:
                await _deliver(connection, tree, master, found, key)
            else:
                await record_wait(connection, tree.id, key, request)
                waiting: AgentState = "WAITING_FOR_EXPERT" if request.sender == "expert" else "WAITING_FOR_CHILD"
                await activations.move(connection, [master.id], waiting, ("RUNNING",), run_id=master.run_id)
                tree = await lock_tree(connection, tenant_id, orchestration_id)
                tree = await break_deadlocks(tx, tree, await deliver(tx, tree))
                if not tree.master_waits:
                    woken = await messages.delivered_to(connection, tree.id, master.id, key)
                    found = interrupted(woken[0]) if woken else None
            tx.announce(await changed_now(connection, tree.id))
        return None if found is None else MasterAnswer(found.text, found.failed)

    async def complete(
        self, tenant_id: str, orchestration_id: str, summary: str, artifacts: Mapping[str, Any]
    ) -> OrchestrationView:
        """End an orchestration with a result, and return it. Children that still work are killed.

        Repeating it changes nothing.

        Raises:
            NotFound: No such orchestration in this tenant.
            OrchestrationError: The master is not external, or was killed.
        """
        async with self._work.begin() as tx:
            connection = tx.connection
            master = await find_external_master(connection, tenant_id, orchestration_id)
            if master.state == "COMPLETED":
                return await get_orchestration(connection, tenant_id, orchestration_id)
            tree = await lock_tree_of_external(connection, tenant_id, orchestration_id, run_id=master.run_id)
            if not await complete_agent(tx, tree, master, summary, artifacts):
                raise OrchestrationError(f"The master of orchestration {orchestration_id!r} has ended.")
            tx.announce(await changed_now(connection, tree.id))
            return await get_orchestration(connection, tenant_id, orchestration_id)

    async def _seen(self, master: AgentDescriptor) -> None:
        """Record the request of a call that changed nothing, such as one that only reads."""
        async with self._work.database.connection() as connection:
            await lock_tree_of_external(connection, master.tenant_id, master.orchestration_id, run_id=master.run_id)


async def _deliver(connection: Connection, tree: LockedTree, master: AgentDescriptor, found: Match, key: str) -> None:
    await messages.mark_delivered(connection, [message.id for message in found.messages], key)
    await end_wait(connection, tree.id, key)
    await activations.move(connection, [master.id], "RUNNING", _WAITING, run_id=master.run_id)


def _given(tool: str, form: type[_Form], arguments: Mapping[str, Any]) -> _Form:
    try:
        return form.model_validate(dict(arguments))
    except ValidationError as error:
        wrong = "; ".join(f"{place_of(item) or 'arguments'}: {item['msg']}" for item in error.errors())
        raise InvalidInput(f"{tool}: {wrong}", field="arguments") from error


def _context(master: AgentDescriptor, key: str) -> CapabilityContext:
    place = OrchestrationPlace(
        orchestration_id=master.orchestration_id,
        agent_id=master.id,
        role="MASTER",
        depth=master.depth,
        permission_mode=master.permission_mode,
        limits=OrchestrationLimits(),
        is_external=True,
    )
    return CapabilityContext(
        tenant_id=master.tenant_id,
        agent_id=master.id,
        thread_id=master.thread_id,
        run_id=master.run_id,
        place=place,
        turn_id="external",
        call_id=key,
    )
