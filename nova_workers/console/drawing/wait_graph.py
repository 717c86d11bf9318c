"""Which agents of an orchestration wait for which, as a graph: boxes by their level in the tree, arrows for waits."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from nova_workers.console.formats import brief
from nova_workers.console.names import mark_of
from nova_workers.contracts.http.orchestrations import TreeAgent

PERSON = "a person"
_MAX_DRAWN = 60
"""A graph of more agents is not readable; its list is."""
_WIDTH, _ROW, _BOX_WIDTH, _BOX_HEIGHT, _A_ROW, _MARGIN = 640.0, 84.0, 152.0, 40.0, 4, 26.0
_NAME_CHARS = 15
_MARK = 16.0
"""Side of the square with an agent's colour and initial, as beside its name elsewhere."""
_MARK_INSET = 8.0
_APART = 7.0
"""The space between the arrows of two agents that wait for each other."""

_SVG = Markup(
    '<svg class="wait-graph" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    "<defs>{heads}</defs>{inside}</svg>"
)
_HEAD = Markup(
    '<marker id="wait-{tone}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="head {tone}" d="M0 0L8 4L0 8Z"/></marker>'
)
_ARROW = Markup('<path class="wait {tone}" d="{d}" marker-end="url(#wait-{tone})"><title>{title}</title></path>')
_BOX = Markup(
    '<g class="box {tone}"><title>{title}</title><rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    '{mark}<text class="name" x="{at}" y="{name_y}" text-anchor="middle">{name}</text>'
    '<text x="{at}" y="{state_y}" text-anchor="middle">{state}</text></g>'
)
_AGENT_MARK = Markup(
    '<g class="mark hue-{hue}" aria-hidden="true"><rect x="{x}" y="{y}" width="{side}" height="{side}" rx="4"/>'
    '<text x="{at}" y="{text_y}" text-anchor="middle">{initial}</text></g>'
)

Tone = Literal["plain", "person", "cycle", "dead"]


class Wait(NamedTuple):
    """An agent that waits for another, or for a person: `note` says what is wrong with that."""

    agent_id: str
    name: str
    target_id: str | None
    target: str
    tone: Tone
    note: str | None


class WaitGraph(NamedTuple):
    """The drawing, None where nothing waits or too much does; and the same as a list."""

    svg: Markup | None
    waits: tuple[Wait, ...]


class _Node(NamedTuple):
    name: str
    state: str
    tone: str
    level: int
    mark: tuple[int, str] | None = None
    """Colour and initial of an agent; None for what is none."""


def draw_waits(agents: Sequence[TreeAgent]) -> WaitGraph:
    """Return who waits for whom. Waits in a cycle, and waits for agents that have ended, are marked."""
    by_id = {agent.id: agent for agent in agents}
    on_cycle = _on_cycles({agent.id: agent.waits_for for agent in agents if agent.waits_for})
    waits = [_wait(agent, target_id, by_id, on_cycle) for agent in agents for target_id in agent.waits_for]
    waits += [Wait(agent.id, agent.name, None, PERSON, "person", None) for agent in agents if agent.waits]
    nodes = _nodes(waits, by_id)
    return WaitGraph(_draw(waits, nodes) if waits and len(nodes) <= _MAX_DRAWN else None, tuple(waits))


def _wait(agent: TreeAgent, target_id: str, by_id: Mapping[str, TreeAgent], on_cycle: frozenset[str]) -> Wait:
    target = by_id.get(target_id)
    name = target_id if target is None else target.name
    if target is not None and target.state == "COMPLETED":
        return Wait(agent.id, agent.name, target_id, name, "plain", f"{name} has ended; its result is on its way")
    if target is None or target.ended_at is not None:
        state = "is not in the tree" if target is None else f"has ended ({target.state.lower()})"
        return Wait(agent.id, agent.name, target_id, name, "dead", f"{name} {state}")
    if {agent.id, target_id} <= on_cycle:
        return Wait(agent.id, agent.name, target_id, name, "cycle", "they wait for each other in a cycle")
    return Wait(agent.id, agent.name, target_id, name, "plain", None)


def _on_cycles(edges: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the nodes on cycles, and those between two: what is left without nodes that lead in or out only."""
    left = {node: {target for target in targets if target in edges} for node, targets in edges.items()}
    while True:
        entered = {target for targets in left.values() for target in targets}
        kept = {node for node, targets in left.items() if targets and node in entered}
        if len(kept) == len(left):
            return frozenset(kept)
        left = {node: left[node] & kept for node in kept}


def _nodes(waits: Iterable[Wait], by_id: Mapping[str, TreeAgent]) -> dict[str, _Node]:
    """Return the boxes by their ids, in the order of the tree; a person is below all agents."""
    ids = {end for wait in waits for end in (wait.agent_id, wait.target_id or PERSON)}
    known = [agent for agent in by_id.values() if agent.id in ids]
    nodes = {
        agent.id: _Node(agent.name, _state(agent), _tone(agent), agent.depth, mark_of(agent.id, agent.name))
        for agent in known
    }
    last = max((node.level for node in nodes.values()), default=0) + 1
    for other in sorted(ids - nodes.keys()):
        nodes[other] = _Node(other, "" if other == PERSON else "not in the tree", "person", last)
    return nodes


def _draw(waits: Sequence[Wait], nodes: Mapping[str, _Node]) -> Markup:
    levels: dict[int, list[str]] = {}
    for node_id, node in nodes.items():
        levels.setdefault(node.level, []).append(node_id)
    rows = [ids[at : at + _A_ROW] for _, ids in sorted(levels.items()) for at in range(0, len(ids), _A_ROW)]
    places = {
        node_id: ((at + 0.5) * _WIDTH / len(row), _MARGIN + number * _ROW + _BOX_HEIGHT / 2)
        for number, row in enumerate(rows)
        for at, node_id in enumerate(row)
    }
    parts = [
        _ARROW.format(
            tone=wait.tone,
            d=_arrow(places[wait.agent_id], places[wait.target_id or PERSON]),
            title=f"{wait.name} waits for {wait.target}" + (f": {wait.note}" if wait.note else ""),
        )
        for wait in waits
    ]
    parts += [_box(node, *places[node_id]) for node_id, node in nodes.items()]
    heads = Markup("").join(_HEAD.format(tone=tone) for tone in ("plain", "person", "cycle", "dead"))
    height = 2 * _MARGIN + (len(rows) - 1) * _ROW + _BOX_HEIGHT
    return _SVG.format(width=_WIDTH, height=height, label=_label(waits), heads=heads, inside=Markup("").join(parts))


def _box(node: _Node, x: float, y: float) -> Markup:
    text_x = x if node.mark is None else x + (_MARK_INSET + _MARK) / 2
    return _BOX.format(
        tone=node.tone,
        title=f"{node.name}: {node.state}" if node.state else node.name,
        x=round(x - _BOX_WIDTH / 2, 1),
        y=round(y - _BOX_HEIGHT / 2, 1),
        width=_BOX_WIDTH,
        height=_BOX_HEIGHT,
        mark="" if node.mark is None else _mark(*node.mark, x - _BOX_WIDTH / 2 + _MARK_INSET, y),
        at=round(text_x, 1),
        name_y=round(y - 2 if node.state else y + 4, 1),
        state_y=round(y + 12, 1),
        name=brief(node.name, _NAME_CHARS),
        state=node.state,
    )


def _mark(hue: int, initial: str, x: float, y: float) -> Markup:
    """Return the mark of an agent, in the middle of the height of its box."""
    top, middle = round(y - _MARK / 2, 1), round(x + _MARK / 2, 1)
    return _AGENT_MARK.format(
        hue=hue, initial=initial, x=round(x, 1), y=top, side=_MARK, at=middle, text_y=round(y + 3.5, 1)
    )


def _arrow(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """Return the path from box to box: between rows from edge to edge, within a row as an arc above it."""
    (x1, y1), (x2, y2) = begin, end
    half = _BOX_HEIGHT / 2
    if y1 == y2:
        # Of two that wait for each other, one arc is above and one below.
        side = -1 if x1 <= x2 else 1
        edge, bow = y1 + side * half, y1 + side * (half + 24)
        return f"M{x1:.1f} {edge:.1f}C{x1:.1f} {bow:.1f} {x2:.1f} {bow:.1f} {x2:.1f} {edge:.1f}"
    down = 1 if y2 > y1 else -1
    x1, x2 = x1 + down * _APART, x2 + down * _APART
    top, bottom = y1 + down * half, y2 - down * half
    middle = (top + bottom) / 2
    return f"M{x1:.1f} {top:.1f}C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {bottom:.1f}"


def _label(waits: Sequence[Wait]) -> str:
    cycles, dead = (sum(wait.tone == tone for wait in waits) for tone in ("cycle", "dead"))
    text = f"{len({wait.agent_id for wait in waits})} waiting, {len(waits)} arrows"
    text += f", {cycles} of them in a cycle" if cycles else ""
    text += f", {dead} to agents that have ended" if dead else ""
    return f"Graph of waits: {text}. The list below has the same."


def _tone(agent: TreeAgent) -> str:
    if agent.ended_at is not None:
        return "ended"
    return "waiting" if agent.waits_for or agent.waits else "working"


def _state(agent: TreeAgent) -> str:
    return "asks a person" if agent.waits else agent.state.lower().replace("_", " ")
