"""The pure rules of a tree: legal moves, which messages end a wait, who breaks a cycle."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.vocabulary import ACTIVE_AGENTS, ENDED_AGENTS, AgentState, RoutedMessageType, words_of
from nova_workers.contracts.orchestration import RoutedMessage
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.orchestrations.rules.deadlock import Waiter, find_components, find_deadlock
from nova_workers.domain.orchestrations.rules.lifecycle import can_restart, legal_sources, validate_transition
from nova_workers.domain.orchestrations.rules.matching import match

STATES: tuple[AgentState, ...] = (*ACTIVE_AGENTS, *ENDED_AGENTS)


def message(
    type: RoutedMessageType, correlation_id: str, *, source: str = "oag_b", success: bool = True
) -> RoutedMessage:
    payload = {"text": f"{type} {correlation_id}", "success": success}
    return RoutedMessage(f"omsg_{type}{correlation_id}", "orc_1", type, source, "oag_a", payload, correlation_id)


def test_there_are_nine_states() -> None:
    assert words_of(AgentState) == STATES
    assert len(STATES) == 9


def test_every_state_may_be_killed_and_only_ended_ones_restart() -> None:
    for state in STATES:
        validate_transition(state, "KILLED")
        assert can_restart(state) == (state in ENDED_AGENTS)


def test_an_illegal_move_names_the_legal_ones() -> None:
    with pytest.raises(ValueError, match="from KILLED to RUNNING; from KILLED it can move to PENDING"):
        validate_transition("KILLED", "RUNNING")


@pytest.mark.parametrize(("source", "target"), list(itertools.product(STATES, STATES)))
def test_the_guard_of_a_move_is_what_the_rule_permits(source: AgentState, target: AgentState) -> None:
    try:
        validate_transition(source, target)
    except ValueError:
        assert source not in legal_sources(target)
    else:
        assert source in legal_sources(target)


def test_a_wait_for_children_ends_when_all_have_reported() -> None:
    request = AwaitMessages(sender="child", correlation_ids=("run_1", "run_2"), agent_ids=("oag_b", "oag_c"))
    assert match(request, [message("TASK_RESULT", "run_1")]) is None
    found = match(request, [message("TASK_RESULT", "run_2"), message("TASK_RESULT", "run_1")])
    assert found is not None
    assert [each.correlation_id for each in found.messages] == ["run_1", "run_2"]
    assert not found.failed


def test_a_wait_for_children_fails_only_if_all_of_them_did() -> None:
    request = AwaitMessages(sender="child", correlation_ids=("run_1", "run_2"), agent_ids=("oag_b", "oag_c"))
    failed, good = message("TASK_RESULT", "run_1", success=False), message("TASK_RESULT", "run_2")
    both = [failed, message("TASK_RESULT", "run_2", success=False)]
    assert [found.failed for found in (match(request, [failed, good]), match(request, both)) if found] == [False, True]


def test_a_question_of_an_awaited_child_ends_the_wait_and_leaves_results_pending() -> None:
    request = AwaitMessages(sender="child", correlation_ids=("run_1", "run_2"), agent_ids=("oag_b", "oag_c"))
    found = match(request, [message("TASK_RESULT", "run_1"), message("QUESTION", "q", source="oag_c")])
    assert found is not None
    assert [each.type for each in found.messages] == ["QUESTION"]
    assert match(request, [message("QUESTION", "q", source="oag_x")]) is None


def test_any_message_is_received_one_at_a_time_and_progress_is_none() -> None:
    request = AwaitMessages(sender="any")
    assert match(request, [message("PROGRESS_UPDATE", "p"), message("KILL_SIGNAL", "k")]) is None
    found = match(request, [message("PROGRESS_UPDATE", "p"), message("TASK_RESULT", "run_1"), message("QUESTION", "q")])
    assert found is not None
    assert [each.correlation_id for each in found.messages] == ["run_1"]


def waiter(id: str, depth: int, *groups: str) -> Waiter:
    return Waiter(id, depth, tuple(frozenset(group.split("|")) for group in groups))


def victim(*waiters: Waiter) -> str | None:
    return next(iter(find_deadlock(waiters)), None)


def test_the_deepest_agent_of_a_cycle_is_the_victim() -> None:
    assert find_deadlock([waiter("a", 0, "b"), waiter("b", 1, "c"), waiter("c", 2, "a")]) == ("c", "b", "a")


def test_the_deepest_agent_of_all_that_wait_for_each_other_is_the_victim() -> None:
    line = [
        waiter("a", 0, "b"),
        waiter("b", 1, "a|c"),
        waiter("c", 2, "b|d|e"),
        waiter("d", 3, "c"),
        waiter("e", 3, "c"),
    ]
    assert find_deadlock(line) == ("e", "d", "c", "b", "a")


def test_the_victim_is_taken_where_its_end_may_free_others() -> None:
    assert victim(waiter("a", 0, "b", "c"), waiter("b", 9, "a"), waiter("c", 1, "d"), waiter("d", 2, "c")) == "d"


def test_an_agent_that_can_act_keeps_those_who_wait_for_it_out_of_a_deadlock() -> None:
    assert victim(waiter("a", 0, "b"), waiter("b", 1, "c")) is None
    assert victim(waiter("a", 0, "b|c"), waiter("b", 1, "a")) is None


def test_waiting_for_all_is_stuck_where_waiting_for_any_is_not() -> None:
    cycle = [waiter("b", 1, "a"), waiter("c", 1, "a")]
    assert victim(waiter("a", 0, "b|d"), *cycle) is None
    assert victim(waiter("a", 0, "b", "d"), *cycle) == "b"


@given(st.dictionaries(st.integers(0, 12), st.frozensets(st.integers(0, 12), max_size=4), max_size=13))
def test_components_are_what_leads_to_each_other_in_the_order_of_where_they_lead(
    graph: dict[int, frozenset[int]],
) -> None:
    nodes = graph.keys() | {to for targets in graph.values() for to in targets}
    edges = {f"{node:02}": frozenset(f"{to:02}" for to in graph.get(node, ())) for node in nodes}
    reached = {node: _reached(node, edges) for node in edges}
    components = find_components(edges)
    assert sorted(node for component in components for node in component) == sorted(edges)
    before: set[str] = set()
    for component in components:
        for node in component:
            together = {other for other in reached[node] if node in reached[other]} | {node}
            assert together == set(component)
            assert reached[node] <= before | set(component)
        before |= set(component)


def _reached(start: str, edges: dict[str, frozenset[str]]) -> set[str]:
    found, left = set[str](), [start]
    while left:
        new = edges[left.pop()] - found
        found |= new
        left += new
    return found
