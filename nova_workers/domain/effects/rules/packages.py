"""Effects of installed packages: functions, each called in a process of its package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from nova_workers.base.errors import ToolFailure
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.ended_runs import EFFECT_CALL, EndedRun
from nova_workers.contracts.tool_programs import ToolPrograms, ToolSource
from nova_workers.contracts.user_tools import QUESTION, CallContext, ListedTool
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.runs.sql.ends import RunEnd, read_run_ends
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.ledger.database import Database

_DEFAULT_AT_ONCE: Final = 4


class PackageEffect:
    """Calls one function with the end of each run. Its key is the effect's id, the same in every attempt."""

    batch_size = 1

    def __init__(
        self,
        database: Database,
        source: ToolSource,
        effect: ListedTool,
        *,
        secrets: Secrets,
        secret_names: Collection[str],
        programs: Callable[[], Awaitable[ToolPrograms]],
    ) -> None:
        """Start nothing.

        Args:
            database: Where the runs are.
            source: The package.
            effect: As it is listed.
            secrets: Of the tenants.
            secret_names: Those of a run's tenant that the function may read.
            programs: Returns what calls functions in processes of packages. Not closed here.
        """
        self.at_once = effect.concurrency or _DEFAULT_AT_ONCE
        self._database = database
        self._source = source
        self._effect = effect.model_copy(update={"name": f"{EFFECT_CALL}{effect.name}"})
        self._name = f"{source.name}:{effect.name}"
        self._secrets = secrets
        self._secret_names = tuple(secret_names)
        self._programs = programs

    async def prepare(self, effects: Sequence[DueEffect]) -> None:
        """Do nothing: all of it is the package's."""

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        """Call the function for each run. See `EffectHandler.handle`.

        Raises:
            ToolFailure: It failed; the message has the place in its code, and no secret.
            NotFound: The tenant lacks a secret that it is to have.
        """
        for effect in effects:
            async with self._database.connection() as connection:
                ends = await read_run_ends(connection, [effect.run_id])
            # A run that was purged meanwhile has none.
            for end in ends:
                await self._call(effect, end)

    async def close(self) -> None:
        """Do nothing: the owner of the processes ends them."""

    async def _call(self, effect: DueEffect, end: RunEnd) -> None:
        values = await self._secrets.require(end.tenant_id, self._secret_names)
        redactor = Redactor(values)
        context = CallContext(
            tenant_id=end.tenant_id,
            agent_id=end.agent_id,
            thread_id=end.thread_id,
            run_id=end.run_id,
            idempotency_key=effect.id,
            secrets=values,
        )
        programs = await self._programs()
        try:
            run = redactor.json(_facts(end).model_dump(mode="json"))
            result = await programs.call(
                self._source, self._effect, {self._parameter: run}, context, enclosure=None, report=None
            )
        except ToolFailure as error:
            raise ToolFailure(redactor.text(error.message.replace(self._effect.name, self._name))) from error
        if QUESTION in (result.meta or {}):
            raise ToolFailure(f"{self._name} asks a person, which an effect cannot. See {self._effect.place}.")
        if result.is_error:
            raise ToolFailure(redactor.text(_text(result)))

    @property
    def _parameter(self) -> str:
        """The name of the parameter that takes the run."""
        (name,) = self._effect.input_schema["properties"]
        return name


def _facts(end: RunEnd) -> EndedRun:
    return EndedRun.model_validate(
        {
            **end.payload,
            "run_id": end.run_id,
            "tenant_id": end.tenant_id,
            "agent_id": end.agent_id,
            "thread_id": end.thread_id,
        }
    )


def _text(result: Any) -> str:
    return "".join(getattr(part, "text", "") for part in result.content)
