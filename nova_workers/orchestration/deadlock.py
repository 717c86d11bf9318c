"""Finds agents that wait for each other in a cycle. Pure.

An agent waits for all of some agents (its children, an expert, its parent's answer) or for any of some
(`wait_for_message`: its parent and its active children). It is stuck if what it waits for can come from stuck agents
only. Among stuck agents a depth-first search finds a cycle, and its deepest agent is the victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Waiter", "find_cycle", "find_victim"]


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


def find_victim(waiters: Iterable[Waiter]) -> str | None:
    """Return the agent to end so that a cycle breaks: its deepest, of several the one spawned last. None without.

    Args:
        waiters: The waiting agents. Agents that are not among them can act, and so can send.
    """
    by_id = {waiter.id: waiter for waiter in waiters}
    cycle = find_cycle(_stuck(by_id))
    if not cycle:
        return None
    return max(cycle, key=lambda agent_id: (by_id[agent_id].depth, agent_id))


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


def find_cycle(edges: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return the agents of one cycle of the directed graph; empty without. Depth-first, in the order of ids."""
    done: set[str] = set()
    for start in sorted(edges):
        if start in done:
            continue
        path: list[str] = []
        on_path: set[str] = set()
        stack = [(start, iter(sorted(edges[start])))]
        path.append(start)
        on_path.add(start)
        while stack:
            node, following = stack[-1]
            target = next((each for each in following if each not in done), None)
            if target is None:
                stack.pop()
                path.pop()
                on_path.discard(node)
                done.add(node)
            elif target in on_path:
                return tuple(path[path.index(target) :])
            else:
                path.append(target)
                on_path.add(target)
                stack.append((target, iter(sorted(edges.get(target, frozenset())))))
    return ()
