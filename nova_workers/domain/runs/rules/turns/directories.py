"""Creates agent directories before a turn begins."""

from __future__ import annotations

import asyncio
import math

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.runs import Claim
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.shell_sandbox import make_private

_TRUSTED_FOR_S = 60.0
"""How long a directory that was seen is assumed to exist: a check takes a thread, as the disk may be remote."""
_REMEMBERED = 4096


class AgentDirectories:
    """Creates missing agent directories. One object serves all worker slots of a process."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._ceilings = CeilingRules.of(settings)
        self._private = PrivateFiles(settings.home, settings.workspace_root)
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        """The path, and when it was seen, by tenant and name."""

    def readable(self, claim: Claim) -> tuple[str, ...]:
        """Return the directories that a run's agent may only read: of one that writes in a directory of its own."""
        if claim.place is None or claim.place.cwd is None or not native_tools(claim.agent.trust):
            return ()
        own = self._settings.agent_directory(claim.tenant_id, claim.directory or claim.agent_id)
        return (str(own), *claim.agent.directories)

    def kept(self, claim: Claim) -> str | None:
        """Return the folder in a run's workspace where children of its orchestration have directories of their own."""
        if claim.place is None or claim.place.cwd is not None:
            return None
        own = self._settings.agent_directory(claim.tenant_id, claim.directory or claim.agent_id)
        return str(own / claim.place.orchestration_id)

    async def directory(self, claim: Claim) -> str | None:
        """Return the working directory of a run's agent; None for an agent without native tools.

        Raises:
            EngineFailure: It does not exist and cannot be created.
        """
        if not native_tools(claim.agent.trust):
            return None
        own = await self._own(claim)
        if claim.place is None or claim.place.cwd is None:
            return own
        return await self._below(claim, own, claim.place.cwd)

    async def _below(self, claim: Claim, own: str, cwd: str) -> str:
        """Make the working directory that an agent of an orchestration has, and return it without links.

        Those who may write where it lies may have put a link in its place.
        """
        ceilings = claim.ceilings
        within = () if ceilings is None else self._ceilings.roots(claim.tenant_id, ceilings)
        confinement = Confinement((cwd,), within=within, beneath=(own, *claim.agent.directories), private=self._private)

        def make() -> str:
            target = confinement.resolve(cwd)
            confinement.make_directory(target)
            return str(target)

        try:
            return await asyncio.to_thread(make)
        except (OSError, ValueError) as error:
            why = str(error) if isinstance(error, ValueError) else (error.strerror or "input or output error").lower()
            raise EngineFailure(
                f"The working directory {cwd!r} cannot be used: {why}.", kind="unknown", retryable=False
            ) from error

    async def _own(self, claim: Claim) -> str:
        owner = claim.tenant_id, claim.directory or claim.agent_id
        now_s = self._clock.monotonic_s()
        known, seen_s = self._seen.get(owner, ("", -math.inf))
        if now_s - seen_s < _TRUSTED_FOR_S:
            return known
        path = self._settings.agent_directory(*owner)
        ceilings = claim.ceilings
        try:
            await asyncio.to_thread(make_private, path, other_user=ceilings is not None and ceilings.sandbox)
        except OSError as error:
            raise EngineFailure(
                f"The directory {str(path)!r} cannot be created: {error.strerror}. See NOVA_TOOLS__WORKSPACE_ROOT.",
                kind="unknown",
                retryable=True,
            ) from error
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[owner] = str(path), now_s
        return str(path)
