"""The graph of who waits for whom in an orchestration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nova_workers.base.vocabulary import AgentState
from nova_workers.console.drawing.wait_graph import draw_waits
from nova_workers.console.names import mark_of
from nova_workers.contracts.http.orchestrations import TreeAgent
from nova_workers.contracts.http.wire import UsageView
from nova_workers.contracts.waits import AskUser, WaitView

_NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)


def _agent(
    name: str, depth: int, waits_for: Sequence[str] = (), *, ended: AgentState | None = None, asks: bool = False
) -> TreeAgent:
    question = WaitView(
        id="wait_1", run_id="run_1", thread_id="thr_1", agent_id="nova", tool_call_id="call_1",
        request=AskUser(question="Which?"), child_run_id=None, due_at=None, created_at=_NOW,
    )  # fmt: skip
    return TreeAgent(
        id=f"oag_{name}", parent_id=None, depth=depth, role="WORKER", name=name,
        state=ended or ("WAITING_FOR_CHILD" if waits_for else "RUNNING"), prompt="x", model=None,
        cwd=None, tools=None, plugins=[], permission_mode="DEFAULT", expert_id=None, thread_id="thr_1", run_id="run_1",
        activations=1, summary=None, artifacts={}, error=None, progress=None,
        waits_for=[f"oag_{other}" for other in waits_for], waits=[question] if asks else [], usage=UsageView(),
        state_at=_NOW, created_at=_NOW, ended_at=_NOW if ended else None,
    )  # fmt: skip


def test_waits_are_arrows_between_boxes_and_the_same_as_a_list() -> None:
    graph = draw_waits([_agent("master", 0, ["a", "b"]), _agent("a", 1), _agent("b", 1, asks=True), _agent("c", 1)])
    assert [(wait.name, wait.target, wait.tone) for wait in graph.waits] == [
        ("master", "a", "plain"),
        ("master", "b", "plain"),
        ("b", "a person", "person"),
    ]
    svg = str(graph.svg)
    assert svg.count('class="wait plain"') == 2
    assert svg.count('class="box ') == 4
    # The colour and initial that an agent has elsewhere; a person has none.
    assert svg.count('class="mark ') == 3
    hue, initial = mark_of("oag_master", "master")
    assert f'class="mark hue-{hue}" aria-hidden="true"' in svg
    assert f">{initial}</text>" in svg
    assert ">c<" not in svg
    assert 'aria-label="Graph of waits: 2 waiting, 3 arrows. The list below has the same."' in svg
    assert "style=" not in svg


def test_a_cycle_is_marked_and_an_agent_that_only_waits_for_it_is_not_part_of_it() -> None:
    graph = draw_waits([_agent("m", 0, ["a"]), _agent("a", 1, ["b"]), _agent("b", 2, ["a", "free"]), _agent("free", 3)])
    assert [(wait.name, wait.target, wait.tone) for wait in graph.waits] == [
        ("m", "a", "plain"),
        ("a", "b", "cycle"),
        ("b", "a", "cycle"),
        ("b", "free", "plain"),
    ]
    assert "2 of them in a cycle" in str(graph.svg)


def test_a_wait_for_an_agent_that_has_ended_or_is_unknown_is_dead() -> None:
    gone, done = _agent("gone", 1, ended="FAILED"), _agent("done", 1, ended="COMPLETED")
    graph = draw_waits([_agent("m", 0, ["gone", "lost", "done"]), gone, done])
    assert [(wait.tone, wait.note) for wait in graph.waits] == [
        ("dead", "gone has ended (failed)"),
        ("dead", "oag_lost is not in the tree"),
        ("plain", "done has ended; its result is on its way"),
    ]


def test_names_are_text_and_a_graph_that_is_too_large_is_only_a_list() -> None:
    assert "<b>" not in str(draw_waits([_agent("<b>m", 0, ["a"]), _agent("a", 1)]).svg)
    many = [_agent("m", 0, [str(number) for number in range(70)]), *(_agent(str(number), 1) for number in range(70))]
    graph = draw_waits(many)
    assert graph.svg is None
    assert len(graph.waits) == 70
    assert draw_waits([_agent("m", 0)]) == (None, ())
