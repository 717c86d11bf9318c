"""The tree of forks as a drawing: a lane for each thread, its turns by their numbers, an arc where it leaves another.

And as a switch at each turn where threads part, which leads from one to the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nova_workers.console.chat.transcript import PAGE_TURNS
from nova_workers.contracts.http.overview.forks import ForkedThread, ForkTreeView

_LANE, _STEP, _MARGIN = 26.0, 24.0, 12.0
_MOST_HEIGHT = 480.0
_LEAST_DOT_STEP = 18.0
"""Closer turns are drawn as one line; each thread keeps its last one."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A turn: its place, its depth, and whether it is its thread's newest."""

    x: float
    y: float
    depth: int
    newest: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread: its line (an SVG path) and its own turns. `depths` says which turns are its own, in words."""

    thread: ForkedThread
    path: str
    dots: tuple[Dot, ...]
    depths: str
    indent: int
    current: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lanes with the size of their drawing."""

    width: float
    height: float
    lanes: tuple[Lane, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """Where threads part: which of their turns is shown, and where the ones before and after it are.

    Attributes:
        place: Of the shown one, from 1.
        before: The address of the one before; None at the first.
    """

    place: int
    count: int
    before: str | None
    after: str | None


Switches = Mapping[tuple[str | None, str], Switch]
"""By the turn that the threads have in common last, and the thread whose turn follows."""


def switches_of(tree: ForkTreeView) -> Switches:
    """Return the switches of a tree: at each turn that more than one thread continues from."""
    by_id = {item.id: item for item in tree.items}
    parted: dict[str, list[ForkedThread]] = {}
    for item in tree.items:
        if item.fork_turn_id is None or item.fork_depth is None:
            continue
        if item.fork_turn_id not in parted:
            parted[item.fork_turn_id] = []
            parent = by_id.get(item.parent_thread_id or "")
            if parent is not None and _goes_on(parent, item.fork_depth):
                parted[item.fork_turn_id].append(parent)
        if _goes_on(item, item.fork_depth):
            parted[item.fork_turn_id].append(item)
    depths = {item.fork_turn_id: item.fork_depth or 0 for item in tree.items}
    switches: dict[tuple[str | None, str], Switch] = {}
    for turn_id, threads in parted.items():
        places = [_address(thread, depths[turn_id] + 1) for thread in threads]
        for at, thread in enumerate(threads if len(threads) > 1 else ()):
            before, after = places[at - 1] if at else None, places[at + 1] if at + 1 < len(places) else None
            switches[turn_id, thread.id] = Switch(at + 1, len(places), before, after)
    return switches


def _goes_on(thread: ForkedThread, depth: int) -> bool:
    """Return whether a thread has turns of its own below a depth."""
    return not thread.deleted and (thread.head_depth or 0) > depth


def _address(thread: ForkedThread, depth: int) -> str:
    """Return where a turn of a thread is shown."""
    is_older = (thread.head_depth or 0) - depth >= PAGE_TURNS
    return f"/chat/{thread.id}{f'?to={depth + PAGE_TURNS // 2}' if is_older else ''}#at-{depth}"


def draw_tree(tree: ForkTreeView, current: str) -> Drawing | None:
    """Return the drawing of a tree with the open thread marked; None for a thread without forks."""
    if len(tree.items) < 2:
        return None
    ordered = _in_depth(tree.items)
    deepest = max((item.head_depth or item.fork_depth or 0) for item in tree.items)
    step = min(_STEP, _MOST_HEIGHT / max(1, deepest))
    lanes: list[Lane] = []
    x_of: dict[str, float] = {}
    for at, (item, indent) in enumerate(ordered):
        x = x_of[item.id] = _MARGIN + at * _LANE
        path, dots, depths = _line(item, x, x_of.get(item.parent_thread_id or ""), step)
        lanes.append(Lane(item, path, dots, depths, indent, item.id == current))
    return Drawing(
        2 * _MARGIN + (len(ordered) - 1) * _LANE, 2 * _MARGIN + (deepest + 1) * step, tuple(lanes), tree.complete
    )


def _line(item: ForkedThread, x: float, parent_x: float | None, step: float) -> tuple[str, tuple[Dot, ...], str]:
    """Return a thread's line, its dots, and its own turns in words."""
    begin = 0 if item.fork_depth is None else item.fork_depth + 1
    end = item.head_depth if item.head_depth is not None and item.head_depth >= begin else None
    top, bottom = _MARGIN + begin * step, _MARGIN + (begin if end is None else end) * step
    path = f"M{x:g} {top:g}V{bottom:g}"
    if parent_x is not None:
        fork_y = top - step
        path = f"M{parent_x:g} {fork_y:g}C{parent_x:g} {top:g} {x:g} {fork_y:g} {x:g} {top:g}V{bottom:g}"
    depths = range(begin, -1 if end is None else end + 1)
    shown = depths if step >= _LEAST_DOT_STEP else depths[-1:]
    dots = tuple(Dot(x, _MARGIN + depth * step, depth, depth == end) for depth in shown)
    return path, dots, _words(begin, end)


def _words(begin: int, end: int | None) -> str:
    if end is None:
        return "no turn of its own yet"
    return f"turn {begin + 1}" if begin == end else f"turns {begin + 1} to {end + 1}"


def _in_depth(items: Sequence[ForkedThread]) -> list[tuple[ForkedThread, int]]:
    """Return the threads with their nesting, each before its forks."""
    children: dict[str | None, list[ForkedThread]] = {}
    for item in items:
        children.setdefault(item.parent_thread_id, []).append(item)
    ordered: list[tuple[ForkedThread, int]] = []
    waiting = [(item, 0) for item in reversed(children.get(None, []))]
    while waiting:
        item, indent = waiting.pop()
        ordered.append((item, indent))
        waiting += [(child, indent + 1) for child in reversed(children.get(item.id, []))]
    return ordered
