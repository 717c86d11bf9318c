"""Agents, and the fleet's embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.contracts.http.wire import AgentView
from nova_workers.contracts.ports import Embedder

from ...errors import EmbeddingsOff
from .request import DoorRequest

_AGENTS_AT_ONCE: Final = 200


class Agents(DoorRequest):
    """What a client may name as a model."""

    __slots__ = ()

    async def agents(self) -> tuple[AgentView, ...]:
        """Return the agents that the key may send messages to, by their ids.

        The scope of messages is enough: a client that may name any agent may know which there are.
        """
        found: list[AgentView] = []
        while page := await self.state.services.agents.list(
            self.caller.tenant_id, after=found[-1].id if found else None, limit=_AGENTS_AT_ONCE
        ):
            found += page
            if len(page) < _AGENTS_AT_ONCE:
                break
        return tuple(found)

    async def agent(self, agent_id: str) -> AgentView:
        """Return an agent that the key may send messages to.

        Raises:
            NotFound: No such agent in this tenant.
            Gone: It was deleted or renamed.
        """
        return await self.state.services.agents.get(self.caller.tenant_id, agent_id)

    def embedding_model(self) -> str:
        """Return the name of the fleet's embedding model.

        Raises:
            EmbeddingsOff: It has none.
        """
        return self._embeddings.model

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector a text, in order. It counts as an open stream of the key while it takes.

        Raises:
            EmbeddingsOff: The fleet has no embedding model.
            Unavailable: It does not answer now.
            TooManyStreams: All permits of the key are in use.
        """
        async with self.state.permits.hold(self.caller.key_id):
            try:
                return await self._embeddings.embed(texts)
            except ConfigurationError as error:
                raise Unavailable("The embedding model cannot be used now.", cause=str(error)) from error

    @property
    def _embeddings(self) -> Embedder:
        embedder = self.state.services.embeddings
        if embedder is None:
            raise EmbeddingsOff(
                "This fleet has no embedding model: the operator installs the extra 'embeddings', or sets "
                "NOVA_EFFECTS__EMBEDDING_PROVIDER to a server that has one."
            )
        return embedder
