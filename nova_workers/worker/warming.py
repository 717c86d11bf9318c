"""Loads what the first turns of a worker need, in the background, once the worker serves."""

from __future__ import annotations

import asyncio

import structlog

from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.bootstrap.deferred import DeferredEngine
from nova_workers.bootstrap.windows import EngineWindows
from nova_workers.bootstrap.worker import WorkerServices
from nova_workers.domain.agents.sql.records import PartsInUse, parts_in_use
from nova_workers.domain.capabilities.rules.seam import input_schema
from nova_workers.worker.rehearsal import rehearse_turns

_log = structlog.get_logger(__name__)

_AGAIN_S = 2.0


class Warming:
    """Loads the engines and the tools that the fleet's agents have, and what their first turns would build."""

    def __init__(self, services: WorkerServices) -> None:
        self._services = services

    async def run(self) -> None:
        """Load everything once. What cannot be loaded is logged here, and fails the turns that need it."""
        default = self._services.settings.default_engine
        try:
            await self._warm(default)
            in_use = await self._parts_in_use()
            for name in sorted(in_use.engines - {default}):
                await self._warm(name)
            await self._services.tools.load()
            await self._describe_tools(in_use)
            await self._services.executor.rehearse()
            await rehearse_turns(self._services)
        except Exception:
            # The worker serves without it.
            _log.exception("worker.not_warm")
        else:
            _log.info("worker.warm", engines=sorted(in_use.engines | {default}))

    async def _warm(self, name: str) -> None:
        engine = self._services.engines.get(name)
        if not isinstance(engine, DeferredEngine):
            return
        try:
            await engine.warm_up()
        except ConfigurationError as error:
            _log.warning("worker.engine_not_loaded", engine=name, problem=error.message)
            return
        except Exception:
            # Of a rehearsal: the other engines are loaded all the same.
            _log.exception("worker.engine_not_rehearsed", engine=name)
        # The list of models is loaded by the first look at a model's window.
        await asyncio.to_thread(
            EngineWindows(self._services.settings).context_tokens, name, self._services.settings.default_model
        )

    async def _parts_in_use(self) -> PartsInUse:
        while True:
            try:
                async with self._services.database.connection() as connection:
                    return await parts_in_use(connection)
            except Unavailable:
                # Other parts of the process report that, and wait.
                await asyncio.sleep(_AGAIN_S)

    async def _describe_tools(self, in_use: PartsInUse) -> None:
        for given in self._services.capabilities.tool_inputs(in_use.capabilities):
            # A schema takes 3 ms, and is built here, since two threads must not build the same one.
            schema = input_schema(given)
            await asyncio.sleep(0)
            self._services.tools.describe(schema)
            await asyncio.sleep(0)
