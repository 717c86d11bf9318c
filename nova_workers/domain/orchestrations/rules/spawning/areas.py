"""Where agents of an orchestration may write, and whether two of them could in the same place. Pure.

An agent with a working directory of its own writes below that alone. Any other one writes where the agent may that the
orchestration runs under: in its workspace, but for the folder of the orchestration there, and in its further
directories. Paths are compared as they are written; where a link leads is checked by the worker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.vocabulary import ENDED_AGENTS, PermissionMode
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.contracts.orchestration import AgentDescriptor, CapabilityTools

_WRITING_TOOLS: Final = frozenset({"Write", "Edit", SHELL_TOOL})
_READING_MODES: Collection[PermissionMode] = ("PLAN", "DELEGATE")
_UNFIT: Final = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class WorkArea:
    """Where an agent may write.

    Attributes:
        workspace: The own directory of the agent that the orchestration runs under.
        folder: In it, where children get directories of their own.
        directories: Its further directories.
        cwd: The working directory of an agent that writes there alone.
    """

    workspace: str
    folder: str
    directories: tuple[str, ...] = ()
    cwd: str | None = None

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories below which it may write."""
        return (self.workspace, *self.directories) if self.cwd is None else (self.cwd,)

    @property
    def start(self) -> str:
        """Where its relative paths start."""
        return self.cwd or self.workspace

    @property
    def is_private(self) -> bool:
        """Whether all of it belongs to the agent alone: no directory of it is one that people gave it."""
        return all(_is_below(root, self.workspace) for root in self.roots)

    def at(self, cwd: str | None) -> WorkArea:
        """Return that of another agent of the tree, by its working directory."""
        return replace(self, cwd=cwd)

    def resolve(self, cwd: str, *, start: str) -> str | None:
        """Return a directory in it as an absolute path; None if it is none. A relative one begins at `start`."""
        parts = PurePosixPath(cwd).parts
        path = str(PurePosixPath(start, cwd))
        if ".." in parts or "\x00" in cwd or not any(_is_below(path, root) for root in self.roots):
            return None
        return path

    def shared_with(self, other: WorkArea) -> str | None:
        """Return the outermost directory below which both may write; None if there is none."""
        shared = {
            inner
            for own in self.roots
            for theirs in other.roots
            for inner, outer, area in ((own, theirs, other), (theirs, own, self))
            if _is_below(inner, outer) and not area._leaves_out(inner)
        }
        return min(shared, key=len, default=None)

    def _leaves_out(self, path: str) -> bool:
        return self.cwd is None and _is_below(path, self.folder)


@dataclass(frozen=True, slots=True)
class Writers:
    """The live agents that a child which may write works beside.

    Attributes:
        agents: Each with where it may write.
        taken: Working directories of all agents of the tree, also of those that have ended.
    """

    agents: Sequence[tuple[AgentDescriptor, WorkArea]]
    taken: frozenset[str]

    def place(self, area: WorkArea, cwd: str | None, *, alone: bool, name: str) -> str | None:
        """Return the working directory of a child that may write.

        A child that works while its parent waits for it alone works where its parent does. Others that name none get
        one of their own, but not in directories that people gave the agent: nothing is made there that was not asked
        for, and the child could not do its work there.

        Args:
            area: Where its parent may write.
            cwd: What was asked for, resolved.
            alone: Whether the parent waits for this child, and for no other.
            name: The child's name.

        Raises:
            AgentSpawnError: Another agent may write in the same place.
        """
        if cwd is not None:
            self.check(area.at(cwd), area)
            return cwd
        is_free = not any(area.shared_with(theirs) for _, theirs in self.agents)
        if is_free and (alone or not area.is_private):
            return area.cwd
        own = self._own(area, name) if area.is_private else area.cwd
        self.check(area.at(own), area)
        return own

    def check(self, wanted: WorkArea, area: WorkArea) -> None:
        """Check that no other agent may write where a child would.

        Args:
            wanted: Where it would.
            area: Where its parent may write.

        Raises:
            AgentSpawnError: One may; says which, where, and how to give each a directory of its own.
        """
        for agent, theirs in self.agents:
            shared = wanted.shared_with(theirs)
            if shared is None:
                continue
            first, second = self._examples(area)
            if any(area.at(f"{area.start}/{second}").shared_with(each) for _, each in self.agents):
                advice = f'Wait until it ends; or spawn both with one each, such as cwd="{first}" and cwd="{second}"'
            else:
                advice = f'Give this one a directory of its own, such as cwd="{second}"'
            more = f"; an absolute path may be in {', '.join(area.roots)}" if len(area.roots) > 1 else ""
            raise AgentSpawnError(
                f"cwd: child {agent.id!r} ({agent.name}) is {agent.state} and may write in {shared!r}, where this one "
                f"could write too, so each might overwrite what the other one does. {advice} (a name is below "
                f"{area.start!r}{more}). A child that only reads needs none: role REVIEWER, or tools such as "
                '["Read", "Glob", "Grep"].'
            )

    def _examples(self, area: WorkArea) -> tuple[str, str]:
        free = (name for name in _names("worker-", ()) if f"{area.start}/{name}" not in self.taken)
        return next(free), next(free)

    def _own(self, area: WorkArea, name: str) -> str:
        base = area.folder if area.cwd is None else area.start
        word = _UNFIT.sub("-", name.lower()).strip("-.")[:40] or "child"
        return next(path for each in _names(f"{word}-", (word,)) if (path := f"{base}/{each}") not in self.taken)


def writers_beside(
    agents: Sequence[AgentDescriptor],
    area: WorkArea,
    known: CapabilityTools,
    parent: AgentDescriptor,
    child: AgentDescriptor | None = None,
) -> Writers:
    """Return the live agents that may write, beside a child: all but itself and those above it.

    Args:
        agents: All agents of the tree.
        area: Of any agent of it.
        known: All capabilities.
        parent: The child's parent.
        child: The child, if it is there already.
    """
    above = {*_line(parent, {agent.id: agent for agent in agents}), *(() if child is None else (child.id,))}
    live = [
        (agent, area.at(agent.cwd))
        for agent in agents
        if agent.id not in above and agent.state not in ENDED_AGENTS and agent_may_write(agent, known)
    ]
    return Writers(live, frozenset(agent.cwd for agent in agents if agent.cwd is not None))


def may_write(native_tools: Collection[str] | None, mode: PermissionMode, *, by_capabilities: bool = False) -> bool:
    """Return whether an agent may write files.

    Args:
        native_tools: None of one that an earlier release spawned.
        mode: Its permission mode.
        by_capabilities: Whether a tool of its capabilities does; see `writes_files`.
    """
    writes = native_tools is None or by_capabilities or not _WRITING_TOOLS.isdisjoint(native_tools)
    return writes and mode not in _READING_MODES


def agent_may_write(agent: AgentDescriptor, known: CapabilityTools) -> bool:
    """Return whether an agent of a tree may write files. `known`: all capabilities."""
    by_capabilities = writes_files(agent.capabilities, known)
    return may_write(agent.tools, agent.permission_mode, by_capabilities=by_capabilities)


def writes_files(capabilities: Mapping[str, Collection[str] | None], known: CapabilityTools) -> bool:
    """Return whether a tool of these capabilities writes files; None: all of a capability."""
    return any(
        effect == "writes-files" and (tools is None or tool in tools)
        for name, tools in capabilities.items()
        for tool, effect in (known.get(name) or {}).items()
    )


def _line(agent: AgentDescriptor, agents: Mapping[str, AgentDescriptor]) -> Iterator[str]:
    above: AgentDescriptor | None = agent
    while above is not None:
        yield above.id
        above = None if above.parent_id is None else agents.get(above.parent_id)


def _names(start: str, first: Sequence[str]) -> Iterator[str]:
    yield from first
    if first:
        yield from (f"{start}{number}" for number in range(2, 1_000_000))
    else:
        yield from (f"{start}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
        yield from (f"{start}{number}" for number in range(1_000_000))


def _is_below(path: str, root: str) -> bool:
    return PurePosixPath(path).is_relative_to(root)
