"""Finds agents that wait for each other. Pure.

An agent waits for all of some agents (its children, an expert, its parent's answer) or for any of some
(`wait_for_message`: its parent and its active children). It is stuck if what it waits for can come from stuck agents
only. A deadlock is a strongly connected component of stuck agents: each waits for each, over others. Its deepest agent
is the victim, since least work hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiter:
    """An active agent that waits for other agents and for nothing else.

    Attributes:
        depth: Its level in the tree.
        groups: What it waits for: one of each group must send. An empty group can never be satisfied.
    """

    id: str
    depth: int
    groups: tuple[frozenset[str], ...]


def find_deadlock(waiters: Iterable[Waiter]) -> tuple[str, ...]:
    """Return the agents of a deadlock, the victim first: the deepest, of several the one spawned last. Empty without.

    Of several deadlocks it is one that leads to no other: with its end, agents of the others may be free.

    Args:
        waiters: The waiting agents. Agents that are not among them can act, and so can send.
    """
    by_id = {waiter.id: waiter for waiter in waiters}
    edges = _stuck(by_id)
    for component in find_components(edges):
        if any(edges[agent_id].intersection(component) for agent_id in component):
            return tuple(sorted(component, key=lambda agent_id: (by_id[agent_id].depth, agent_id), reverse=True))
    return ()


def _stuck(waiters: Mapping[str, Waiter]) -> dict[str, frozenset[str]]:
    """Return the agents that no message can reach, each with the stuck agents that it waits for."""
    stuck = dict(waiters)
    changed = True
    while changed:
        free = [w.id for w in stuck.values() if all(any(each not in stuck for each in group) for group in w.groups)]
        for agent_id in free:
            del stuck[agent_id]
        changed = bool(free)
    return {
        waiter.id: frozenset(each for group in waiter.groups for each in group if each in stuck)
        for waiter in stuck.values()
    }


def find_components(edges: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of the directed graph, each after those that it leads to.

    Tarjan's algorithm, in the order of ids and without recursion: a tree may be deep.
    """
    found: list[tuple[str, ...]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    open_nodes: set[str] = set()
    for start in sorted(edges):
        stack = [] if start in index else [(start, iter(sorted(edges[start])))]
        while stack:
            node, following = stack[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                open_nodes.add(node)
            target = next((each for each in following if each not in index or each in open_nodes), None)
            if target is not None:
                if target in index:
                    low[node] = min(low[node], index[target])
                else:
                    stack.append((target, iter(sorted(edges.get(target, frozenset())))))
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                low[above] = min(low[above], low[node])
            if low[node] == index[node]:
                at = path.index(node)
                found.append(tuple(path[at:]))
                open_nodes.difference_update(path[at:])
                del path[at:]
    return found
