"""One orchestration: its agents, messages, waits and file changes; live while it is open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.console.actions import act
from nova_workers.console.drawing.wait_graph import WaitGraph, draw_waits
from nova_workers.console.forms import build, read_form
from nova_workers.console.live import DONE, RENEW, Change, renewals, stream
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.orchestrations import (
    AgentKill,
    AgentPrompt,
    FileChange,
    OrchestrationContinue,
    OrchestrationMessageView,
    OrchestrationTree,
    OrchestrationView,
    TreeAgent,
)

_NEWS = frozenset({"agent_state", "agent_message", "waiting", "orchestration_end", "tool_status", "step"})


class Seen(NamedTuple):
    """What the page shows of an orchestration."""

    view: OrchestrationView
    tree: OrchestrationTree
    messages: list[OrchestrationMessageView]
    changes: list[FileChange]
    names: dict[str, str]
    children: dict[str | None, list[TreeAgent]]
    waits: WaitGraph


async def show(request: Request) -> Response:
    """Show an orchestration."""
    return render(request, "orchestrations/show.html", seen=await _read(request))


async def follow(request: Request) -> Response:
    """Say when the tree has news."""
    return stream(state_of(request).watch, _changes(request))


async def _changes(request: Request) -> AsyncGenerator[Change]:
    events = client_of(request).orchestrations.events(request.path_params["orchestration"])
    async with aclosing(renewals(events, lambda item: item[1].event.type in _NEWS)) as news:
        async for _ in news:
            yield RENEW
    yield DONE


async def kill(request: Request) -> Response:
    """Kill an agent and all below it, or the whole tree."""
    orchestration_id, form = request.path_params["orchestration"], await read_form(request)
    given = {"agent_id": form.given("agent"), "reason": "a person killed it in the console"}
    calls = client_of(request).orchestrations
    return await act(
        request,
        f"/orchestrations/{orchestration_id}",
        lambda: calls.kill(orchestration_id, build(AgentKill, given)),
        "Killed.",
    )


async def prompt(request: Request) -> Response:
    """Send a message to an agent."""
    orchestration_id, form = request.path_params["orchestration"], await read_form(request)
    calls, agent = client_of(request).orchestrations, request.path_params["agent"]
    return await act(
        request,
        f"/orchestrations/{orchestration_id}",
        lambda: calls.prompt(orchestration_id, agent, build(AgentPrompt, {"text": form.value("text")})),
        "The message was sent.",
    )


async def go_on(request: Request) -> Response:
    """Give an ended master a follow-up task."""
    orchestration_id, form = request.path_params["orchestration"], await read_form(request)
    calls = client_of(request).orchestrations
    return await act(
        request,
        f"/orchestrations/{orchestration_id}",
        lambda: calls.continue_(
            orchestration_id,
            build(OrchestrationContinue, {"task": form.value("task")}),
            idempotency_key=form.given("key"),
        ),
        "It continues.",
    )


async def history(request: Request) -> Response:
    """Show what an agent said and did."""
    calls, orchestration_id = client_of(request).orchestrations, request.path_params["orchestration"]
    agent = request.path_params["agent"]
    entries, tree = await asyncio.gather(
        calls.history(orchestration_id, agent, detail_level="full"), calls.tree(orchestration_id)
    )
    name = next((each.name for each in tree.agents if each.id == agent), agent)
    return render(request, "orchestrations/history.html", orchestration_id=orchestration_id, name=name, history=entries)


async def _read(request: Request) -> Seen:
    calls, orchestration_id = client_of(request).orchestrations, request.path_params["orchestration"]
    view, tree, messages, changes = await asyncio.gather(
        calls.get(orchestration_id),
        calls.tree(orchestration_id),
        calls.messages(orchestration_id, limit=200),
        calls.changes(orchestration_id, limit=100),
    )
    children: dict[str | None, list[TreeAgent]] = {}
    for agent in tree.agents:
        children.setdefault(agent.parent_id, []).append(agent)
    names = {agent.id: agent.name for agent in tree.agents}
    return Seen(view, tree, messages.items, changes.items, names, children, draw_waits(tree.agents))
