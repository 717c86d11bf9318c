"""Creates agent directories before a turn begins."""

from __future__ import annotations

import asyncio
import math

from nova_workers.clock import Clock
from nova_workers.config import Settings
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.runs import Claim
from nova_workers.errors import EngineFailure
from nova_workers.shell_sandbox import make_private

__all__ = ["AgentDirectories"]

_TRUSTED_FOR_S = 60.0
"""How long a directory that was seen is assumed to exist: a check takes a thread, as the disk may be remote."""
_REMEMBERED = 4096


class AgentDirectories:
    """Creates missing agent directories. One object serves all worker slots of a process."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        """By tenant and name: the path, and when it was seen."""

    async def directory(self, claim: Claim) -> str | None:
        """Return the directory of a run's agent; None for an agent without native tools.

        Raises:
            EngineFailure: It does not exist and cannot be created.
        """
        if not native_tools(claim.agent.trust):
            return None
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
