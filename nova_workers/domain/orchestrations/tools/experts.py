"""Tools that ask configured experts, and other models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from nova_workers.base.errors import InvalidInput, ModelNotAvailableError
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.actions import AgentActions, Caller
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.tools.seam import Declarations, Text, await_spawned, caller_of

_LIST = "list"


class _ConsultExpert(ToolInput):
    expert_id: Annotated[str, Field(min_length=1, max_length=64)]
    question: Text


class _ConsultPeer(ToolInput):
    question: Annotated[str, Field(max_length=200_000, description="With everything that the peer must know.")] = ""
    thread_id: Annotated[
        str | None,
        Field(min_length=1, max_length=64, description="The agent that answered before, to ask it again."),
    ] = None
    peer: Annotated[
        str | None,
        Field(max_length=200, description="A provider or a model; 'list' returns those that there are."),
    ] = None


class _Experts:
    def __init__(self, actions: AgentActions, views: AgentViews) -> None:
        self._actions = actions
        self._views = views

    async def consult_expert(self, context: CapabilityContext, given: _ConsultExpert) -> AwaitMessages:
        request = SpawnRequest(given.question, role="EXPERT", expert_id=given.expert_id)
        return await_spawned(await self._actions.spawn(caller_of(context), [request]), "expert")

    async def consult_peer(self, context: CapabilityContext, given: _ConsultPeer) -> str | AwaitMessages:
        caller = caller_of(context)
        if given.peer == _LIST:
            peers, _ = await self._views.peers(caller)
            return _describe(peers)
        if not given.question.strip():
            raise InvalidInput("question: it is blank. Say what the peer is to answer.", field="question")
        if given.thread_id is not None:
            return await self._continue(caller, given.thread_id, given)
        name, model = await self._peer(caller, given.peer)
        request = SpawnRequest(given.question, role="EXPERT", name=f"peer {name}", tools=(), model=model)
        return await_spawned(await self._actions.spawn(caller, [request]), "child")

    async def _continue(self, caller: Caller, thread_id: str, given: _ConsultPeer) -> AwaitMessages:
        if given.peer is not None:
            raise InvalidInput("peer: the thread has its peer. Give thread_id or peer, not both.", field="peer")
        child = await self._views.child(caller, thread_id)
        if child.role != "EXPERT" or child.expert_id is not None:
            raise InvalidInput(f"thread_id: {child.id!r} is no peer but a {child.role}.", field="thread_id")
        return await_spawned([await self._actions.restart(caller, child.id, given.question)], "child")

    async def _peer(self, caller: Caller, wanted: str | None) -> tuple[str, str]:
        """Return a peer's name and the name of its model. A name that is not listed is taken as one of a model."""
        peers, default = await self._views.peers(caller)
        name = wanted or default
        if name is None:
            raise ModelNotAvailableError(
                f"peer: none was named, and the configuration has no default (`peer_model`). {_describe(peers)}"
            )
        return name, peers.get(name, name)


def expert_tools(actions: AgentActions, views: AgentViews) -> Declarations:
    """Return the tools."""
    tools = _Experts(actions, views)
    return (
        ToolDeclaration(
            "consult_expert",
            "Ask a configured expert, and wait for the answer.",
            _ConsultExpert,
            tools.consult_expert,
            idempotent=True,
        ),
        ToolDeclaration(
            "consult_peer",
            "Ask another model for a second opinion, and wait for the answer. It has no tools and does not know your "
            "conversation. The answer names the agent that gave it; give that id as thread_id to ask it again.",
            _ConsultPeer,
            tools.consult_peer,
            idempotent=True,
        ),
    )


def _describe(peers: Mapping[str, str]) -> str:
    lines = "\n".join(name if name == model else f"{name}: {model}" for name, model in peers.items())
    return f"Peers:\n{lines}" if lines else "There are no peers: no provider of another model is available."
