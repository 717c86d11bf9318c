"""The state of a tree of agents as its events tell it, as a drawing for a terminal and as lines for a pipe."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.cli.talk.live import outage_line
from nova_workers.cli.terminal.output import age, money, printable, short
from nova_workers.contracts.events import ProviderUnavailable, StreamEnd, StreamStart, ToolStatus, Usage, Waiting
from nova_workers.contracts.http.orchestrations import OrchestrationTree
from nova_workers.contracts.orchestration.events import (
    AgentMessageSent,
    AgentStateChanged,
    OrchestrationEnd,
    TreeRecord,
)
from nova_workers.contracts.waits import ANSWERABLE

_WAITS = "waits for a person"
_STYLES = {"COMPLETED": "green", "FAILED": "red", "KILLED": "red", "RUNNING": "cyan"}
_MARKS = {"COMPLETED": "✓", "FAILED": "✗", "KILLED": "✗", "RUNNING": "●"}


@dataclass(slots=True)
class _Agent:
    id: str
    parent_id: str | None
    role: str
    name: str
    state: str
    model: str | None = None
    waits_for: tuple[str, ...] = ()
    progress: str = ""
    doing: str = ""
    error: str = ""
    costs: dict[str, float] = field(default_factory=dict[str, float])
    """The costs by run."""
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None

    @property
    def label(self) -> str:
        return f"{self.name} ({self.role.lower()})"


class TreeView:
    """Follows records, and draws what they say.

    Args:
        silent_after_s: After how many seconds without an event a reader should know of it.
    """

    def __init__(self, *, silent_after_s: float = 30.0) -> None:
        self._silent_after_s = silent_after_s
        self._agents: dict[str, _Agent] = {}
        self._began_s = self._latest_s = time.monotonic()
        self.end: OrchestrationEnd | None = None
        self.note = ""

    @property
    def silent_s(self) -> float:
        """Seconds since the latest event, if they are so many that a reader should know; otherwise 0."""
        silent_s = time.monotonic() - self._latest_s
        return silent_s if silent_s >= self._silent_after_s else 0.0

    def take(self, record: TreeRecord) -> str | None:
        """Take a record, and return the line that a pipe gets for it, if any."""
        self._latest_s = time.monotonic()
        self._began_s = min(self._began_s, _on_clock(record.event.at))
        event, agent = record.event, self._agents.get(record.agent_id or "")
        if isinstance(event, AgentStateChanged):
            return self._moved(event)
        if isinstance(event, OrchestrationEnd):
            self.end = event
            return None
        if isinstance(event, AgentMessageSent):
            return self._sent(event)
        return None if agent is None else self._of_run(agent, record)

    def _of_run(self, agent: _Agent, record: TreeRecord) -> str | None:
        """Take an event of the run of an agent."""
        event = record.event
        if isinstance(event, ToolStatus):
            agent.doing = event.tool_name if event.status in ("started", "running") else ""
            return None
        used = event if isinstance(event, Usage) else event.usage if isinstance(event, StreamEnd) else None
        if used is not None and used.cost_usd is not None and record.run_id is not None:
            agent.costs[record.run_id] = used.cost_usd
        if isinstance(event, StreamStart):
            agent.doing = ""
        if isinstance(event, ProviderUnavailable):
            agent.doing = event.summary
            return f"{agent.label}: {outage_line(event)}"
        if isinstance(event, Waiting) and event.kind in ANSWERABLE:
            agent.doing = _WAITS
            options = f" [{', '.join(event.options)}{'' if event.only_options else ', …'}]" if event.options else ""
            return (
                f"? {agent.label} asks: {short(event.question or '', 300)}{options} — answer with "
                f"`nova runs answer {record.run_id}`"
            )
        return None

    def _moved(self, event: AgentStateChanged) -> str:
        agent = self._agents.get(event.agent_id)
        if agent is None:
            agent = _Agent(event.agent_id, event.parent_id, event.role, event.name, event.state)
            self._agents[agent.id] = agent
        if event.state == "PENDING":
            self.end = None if event.depth == 0 else self.end
            agent.began_s, agent.ended_s, agent.progress = _on_clock(event.at), None, ""
        agent.state, agent.waits_for = event.state, event.waits_for
        agent.model = event.model or agent.model
        agent.error = event.error_message or "" if event.state in ("FAILED", "KILLED") else ""
        if event.state in ENDED_AGENTS:
            agent.ended_s, agent.doing = _on_clock(event.at), ""
        what = self._awaited(agent) or short(agent.error or (event.summary or ""), 200)
        return f"{agent.label} {agent.state}" + (f": {what}" if what else "")

    def _sent(self, event: AgentMessageSent) -> str | None:
        source, target = self._name(event.source_id), self._name(event.target_id)
        if event.message_type == "PROGRESS_UPDATE":
            agent = self._agents.get(event.source_id or "")
            text = short(event.text, 100) + (f" {event.percent:g}%" if event.percent is not None else "")
            if agent is not None:
                agent.progress = text
            return f"{source}: {text}"
        return f"{source} → {target} {event.message_type}: {short(event.text, 200)}"

    def seed(self, tree: OrchestrationTree) -> None:
        """Take a tree as the ledger has it."""
        for each in tree.agents:
            agent = _Agent(each.id, each.parent_id, each.role, each.name, each.state, each.model)
            agent.waits_for = tuple(each.waits_for)
            agent.doing = _WAITS if each.waits else "" if each.hold is None else each.hold.message
            agent.error = each.error.message if each.error is not None else ""
            agent.began_s = _on_clock(each.created_at)
            agent.ended_s = _on_clock(each.ended_at or each.state_at) if each.state in ENDED_AGENTS else None
            self._began_s = min(self._began_s, agent.began_s)
            if each.progress is not None:
                percent = each.progress.percent
                agent.progress = each.progress.status + (f" {percent:g}%" if percent is not None else "")
            if each.usage.cost_usd is not None:
                agent.costs[each.run_id] = each.usage.cost_usd
            self._agents[agent.id] = agent

    def render(self, *, live: bool = True) -> RenderableType:
        """Return the drawing of the tree."""
        nodes: dict[str, Tree] = {}
        root = Tree(Text("waiting for a worker", style="dim"))
        for agent in self._agents.values():
            label = self._line(agent)
            parent = nodes.get(agent.parent_id or "")
            if parent is None:
                root = nodes[agent.id] = Tree(label, guide_style="dim")
            else:
                nodes[agent.id] = parent.add(label)
        if not live:
            return root
        spent = sum(sum(agent.costs.values()) for agent in self._agents.values())
        status = f"{age(time.monotonic() - self._began_s)} · {len(self._agents)} agents · {money(spent)}"
        if self.silent_s:
            status += f" · no events for {self.silent_s:.0f} s"
        return Group(root, Text(" · ".join(filter(None, (status, self.note))), style="dim"))

    def _line(self, agent: _Agent) -> Text:
        line = Text(f"{_MARKS.get(agent.state, '○')} ", style=_STYLES.get(agent.state, "yellow"))
        line.append(printable(agent.name), style="bold")
        if agent.role.capitalize() != agent.name:
            line.append(f" {agent.role.lower()}", style="dim")
        line.append(f" {agent.state}", style=_STYLES.get(agent.state, "yellow"))
        spent = sum(agent.costs.values())
        facts = (
            agent.model or "",
            money(spent) if agent.costs else "",
            agent.progress,
            agent.doing,
            self._awaited(agent),
            agent.error,
            age((agent.ended_s or time.monotonic()) - agent.began_s),
        )
        line.append("".join(f" · {short(fact, 80)}" for fact in facts if fact), style="dim")
        return line

    def _awaited(self, agent: _Agent) -> str:
        if not agent.waits_for or agent.state in ENDED_AGENTS:
            return ""
        return f"waits for {', '.join(self._name(each) for each in agent.waits_for)}"

    def _name(self, agent_id: str | None) -> str:
        if agent_id is None:
            return "user"
        agent = self._agents.get(agent_id)
        return agent_id if agent is None else agent.name


def _on_clock(at: datetime | None) -> float:
    """Return a time of the fleet's clock on the monotonic one: what happened before the drawing began, too."""
    # A clock of this machine that is behind the fleet's makes no negative time.
    passed_s = 0.0 if at is None else max((datetime.now(UTC) - at).total_seconds(), 0.0)
    return time.monotonic() - passed_s
