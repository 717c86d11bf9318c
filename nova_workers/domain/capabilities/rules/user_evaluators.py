"""Evaluators in Python: functions of projects and packages, each called in a process of its code, as tools are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.judged_answers import EVALUATOR_CALL, JudgedAnswer, Judgement
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.contracts.user_tools import QUESTION, CallContext
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.capabilities.rules.registry import CapabilityRegistry
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.database import Database


class UserEvaluators:
    """Implements `nova_workers.domain.evaluations.rules.verdicts.EvaluatorFunctions`. A call gets no secret."""

    def __init__(
        self,
        registry: CapabilityRegistry,
        database: Database,
        ceilings: CeilingRules,
        programs: Callable[[], Awaitable[ToolPrograms]],
    ) -> None:
        """Start nothing.

        Args:
            registry: Has the code of users that is installed here.
            database: Of the ceilings of tenants.
            ceilings: The bounds of processes that work for tenants with ceilings.
            programs: Returns what calls functions in processes. Not closed here.
        """
        self._registry = registry
        self._database = database
        self._ceilings = ceilings
        self._programs = programs

    def has(self, tenant_id: str, function: str) -> bool:
        """Return whether a tenant's function is installed here."""
        return self._registry.evaluator(function, tenant_id) is not None

    async def call(self, tenant_id: str, agent_id: str, function: str, answer: JudgedAnswer) -> Judgement:
        """Return the judgement of a function on an answer.

        Raises:
            ToolFailure: It says nothing; the message has the place in its code.
        """
        found = self._registry.evaluator(function, tenant_id)
        if found is None:
            raise ToolFailure(f"{function} is not installed here.")
        source, listed = found
        called = listed.model_copy(update={"name": f"{EVALUATOR_CALL}{listed.name}"})
        (parameter,) = listed.input_schema["properties"]
        async with self._database.connection() as connection:
            ceilings = await get_ceilings(connection, tenant_id)
        programs = await self._programs()
        try:
            result = await programs.call(
                source,
                called,
                {parameter: answer.model_dump(mode="json")},
                CallContext(tenant_id=tenant_id, agent_id=agent_id),
                enclosure=self._ceilings.enclosure(tenant_id, ceilings),
                report=None,
            )
        except ToolFailure as error:
            raise ToolFailure(error.message.replace(called.name, function)) from error
        return _judgement(function, result)


def _judgement(function: str, result: Any) -> Judgement:
    if QUESTION in (result.meta or {}):
        raise ToolFailure(f"{function} asks a person, which an evaluator cannot")
    if result.is_error:
        raise ToolFailure("".join(getattr(part, "text", "") for part in result.content))
    try:
        return Judgement.model_validate(result.structured_content)
    except ValidationError as error:
        raise ToolFailure(f"{function} answered in another form than a Judgement") from error
