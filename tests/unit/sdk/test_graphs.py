"""Graphs of LangGraph as agents: whatever the journal has, the graph goes on from there."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.user_agents import JournalEntry
from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.adapters.langgraph import run_graph
from nova_workers.sdk.durable import Context, StepFailed
from tests.requirements import proves
from tests.support.harness.paper_journal import Died, PaperJournal


class State(TypedDict):
    messages: Annotated[list[Any], operator.add]
    note: Any


def _graph(executed: list[str]) -> Any:
    def first(state: State) -> dict[str, Any]:
        executed.append("first")
        # What JSON has no form for comes back as LangGraph keeps it.
        return {"messages": [AIMessage("1")], "note": {1: b"x", "set": {2}}}

    async def left(state: State) -> dict[str, Any]:
        executed.append("left")
        return {"messages": [AIMessage("2")]}

    def right(state: State) -> dict[str, Any]:
        executed.append("right")
        return {"messages": [AIMessage("3")]}

    def asks(state: State) -> dict[str, Any]:
        assert state["note"] == {1: b"x", "set": {2}}
        said = interrupt("Which?") + interrupt({"question": "And?", "options": ["blue"]})
        executed.append("asks")
        return {"messages": [AIMessage(said)]}

    graph = StateGraph(State)
    for node in (first, left, right, asks):
        graph.add_node(node)
    graph.add_edge(START, "first")
    graph.add_edge("first", "left")
    graph.add_edge("first", "right")
    graph.add_edge(["left", "right"], "asks")
    graph.add_edge("asks", END)
    return graph.compile()


async def _play(
    entries: Sequence[JournalEntry], earlier: Sequence[JournalEntry] = (), most: int = 99
) -> tuple[list[str], list[JournalEntry], list[str] | None]:
    """Return the nodes that one attempt executes, the journal after it, and what the state says at the end."""
    executed: list[str] = []
    journal = PaperJournal(entries, earlier, most)
    context = Context(journal, CallContext(thread_id="thr_1"))
    try:
        state = await run_graph(context, _graph(executed), {"messages": [HumanMessage("hi")]})
    except Died:
        return executed, journal.entries, None
    return executed, journal.entries, [message.content for message in state["messages"]]


SAID = ["hi", "1", "2", "3", "blueblue"]


def _recorded(entries: Sequence[JournalEntry]) -> set[str]:
    return {node for entry in entries for each in entry.finished for node in each.operation.input.get("nodes", ())}


@proves("graphs.resumed")
async def test_a_graph_goes_on_from_any_step_of_the_journal_and_executes_no_recorded_node_again() -> None:
    executed, _, said = await _play(())
    assert (sorted(executed), said) == (["asks", "first", "left", "right"], SAID)
    ended, most = False, 0
    # How many steps there are depends on what ends at once.
    while not ended:
        _, journal, before = await _play((), most=most)
        again, _, said = await _play(journal)
        assert said == SAID, most
        assert not set(again) & (_recorded(journal) - {"asks"}), most
        ended, most = before is not None, most + 1


@proves("graphs.state")
async def test_the_state_of_earlier_messages_is_there_and_steps_grow_with_what_is_new_only() -> None:
    _, journal, _ = await _play(())
    sizes: list[int] = []
    for turn in range(2, 6):
        _, fresh, said = await _play((), journal)
        assert said == SAID * turn
        journal = [*journal, *fresh]
        sizes.append(sum(len(each.text) for entry in fresh for each in entry.finished))
    assert max(sizes) < min(sizes) + 200


@proves("graphs.resumed")
async def test_a_graph_that_cannot_be_kept_is_refused() -> None:
    def large(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("x" * 300_000)]}

    graph = StateGraph(State)
    graph.add_node(large)
    graph.add_edge(START, "large")
    with pytest.raises(StepFailed, match="the largest part is the channel 'messages'"):
        await run_graph(Context(PaperJournal(()), CallContext()), graph.compile(), {"messages": []})
    stops = graph.compile(interrupt_before=["large"])
    with pytest.raises(ConfigurationError, match=r"Expected interrupt\(\) in a node"):
        await run_graph(Context(PaperJournal(()), CallContext()), stops, {"messages": []})
