"""Facts that the ledger records about a turn: role, grants and permission verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import JsonObject, storable
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.runs import Claim, TurnFacts, TurnRole
from nova_workers.domain.capabilities.rules.delegation import ASK_AGENT
from nova_workers.domain.tool_policy.rules import Verdict

_MAX_TOOLS = 200
"""Tool names counted separately; a model may invent more, which are counted together."""
_OTHERS = "*"


class PermissionsUsed:
    """Counts the verdicts on a turn's calls, in this attempt and those before it."""

    def __init__(self, before: Mapping[str, Any] | None) -> None:
        """Continue from the counts of earlier attempts, as returned by `record`."""
        self._verdicts: dict[str, Counter[str]] = {}
        self._rules: dict[str, list[str]] = {}
        for tool, used in (before or {}).items():
            self._verdicts[tool] = Counter({kind: count for kind, count in used.items() if kind != "rules"})
            self._rules[tool] = list(used.get("rules", ()))

    def add(self, tool_name: str, verdict: Verdict) -> None:
        """Count a verdict."""
        name = storable(tool_name)
        if name not in self._verdicts and len(self._verdicts) >= _MAX_TOOLS:
            name = _OTHERS
        self._verdicts.setdefault(name, Counter())[verdict.kind] += 1
        rules = self._rules.setdefault(name, [])
        if verdict.rule is not None and verdict.rule not in rules:
            rules.append(verdict.rule)

    def record(self) -> JsonObject:
        """Return all counts by tool: ``{"Bash": {"allow": 2, "ask": 1, "rules": ["ask: git push*"]}}``."""
        return {
            tool: {**kinds, **({"rules": self._rules[tool]} if self._rules.get(tool) else {})}
            for tool, kinds in self._verdicts.items()
        }


def turn_facts(claim: Claim, options: EngineOptions | None = None) -> TurnFacts:
    """Return the facts about a claimed run's turn. Without options, those known before it is executed."""
    agent = claim.agent
    return TurnFacts(
        role=_role(claim, options),
        toolset_name=agent.trust,
        permissions_granted=_granted(agent),
        workspace_path=None if options is None else options.cwd,
    )


def _role(claim: Claim, options: EngineOptions | None) -> TurnRole:
    if claim.parent_run_id is not None:
        return "worker"
    if claim.agent.subagents:
        return "manager"
    servers = {} if options is None else options.mcp_servers
    asks = any(
        server.tools is None or ASK_AGENT in server.tools for name, server in servers.items() if name == "agents"
    )
    return "manager" if asks else "unified"


def _granted(agent: AgentSpec) -> JsonObject:
    granted: JsonObject = {
        "trust": agent.trust,
        "directories": list(agent.directories),
        "capabilities": {
            name: None if grant.tools is None else list(grant.tools) for name, grant in agent.capabilities.items()
        },
    }
    return granted | agent.permissions.model_dump(mode="json", exclude_defaults=True)
