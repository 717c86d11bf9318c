"""What agents of a project need of tools and code in Python, and no live worker has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.installs import InstalledCode, describe_needs
from nova_workers.contracts.user_agents import CODE_ENGINE

_PROJECT = "project:"


@dataclass(frozen=True, slots=True)
class _Need:
    """A tool or an agent in Python that an agent names; of a whole project neither."""

    source: str
    tool: str | None = None
    function: str | None = None

    def __str__(self) -> str:
        if self.tool is not None:
            return f"the tool {self.tool!r} of {describe_needs([self.source])}"
        if self.function is not None:
            return f"the agent {self.function!r} of {describe_needs([self.source])}"
        return describe_needs([self.source])

    def is_met_by(self, code: InstalledCode) -> bool:
        # An agent names its code without the word in front, and packages have none.
        names = {self.source} if self.function is None else {self.source, self.source.removeprefix(_PROJECT)}
        return (
            code.name in names
            and code.problem is None
            and (self.tool is None or self.tool in code.tools)
            and (self.function is None or self.function in code.agents)
        )


def missing_code(spec: AgentSpec, workers: Iterable[Sequence[InstalledCode]]) -> list[str]:
    """Return the needs of an agent that no live worker meets, each as a phrase; empty if one worker meets all.

    Args:
        spec: The agent's configuration.
        workers: What each live worker with code of users has.
    """
    needs = list(_needs_of(spec))
    lacking = [needs, *([need for need in needs if not any(map(need.is_met_by, codes))] for codes in workers)]
    return [str(need) for need in min(lacking, key=len)]


def _needs_of(spec: AgentSpec) -> Iterable[_Need]:
    for name, grant in spec.capabilities.items():
        if name.startswith(_PROJECT):
            yield from (_Need(name, tool=tool) for tool in grant.tools or ())
            if not grant.tools:
                yield _Need(name)
    agent = spec.engine_config.get("agent")
    if spec.engine == CODE_ENGINE and isinstance(agent, str):
        source, _, function = agent.rpartition(":")
        yield _Need(f"{_PROJECT}{source}", function=function)
