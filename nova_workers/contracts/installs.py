"""The code of users that a worker has, and by which the claim routes runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from nova_workers.contracts.bodies import View

_KEY_CHARS: Final = 12


class InstalledCode(View):
    """A project or package, as a worker has it."""

    name: str
    """The capability's, such as ``project:shop``."""
    version: str = ""
    """The version that its author gave it; empty without one."""
    code: str = ""
    """A digest of its code; empty where that is not known."""
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """The functions that are agents in Python."""
    evaluators: tuple[str, ...] = ()
    problem: str | None = None
    """Why it cannot be used."""

    @property
    def project(self) -> str:
        """The name of the project or package."""
        return self.name.removeprefix("project:")

    @property
    def label(self) -> str:
        """The name, version and digest, as people read them: ``shop 0.1.0 (6ecfbd3f7a3e)``."""
        version = f" {self.version}" if self.version else ""
        return f"{self.project}{version}{f' ({self.code})' if self.code else ''}"


@dataclass(frozen=True)
class Installation:
    """All code of users that one worker has.

    Needs of runs are words: ``project:shop`` for tools of a project, ``code:shop`` for an agent in Python of a project
    or a package. The ledger makes them of an agent's configuration (`agent_needs`).

    Attributes:
        codes: By name.
    """

    codes: tuple[InstalledCode, ...] = ()

    @cached_property
    def provides(self) -> tuple[str, ...]:
        """The needs that it meets."""
        usable = [each.name for each in self.codes if each.problem is None]
        tools = [name for name in usable if name.startswith("project:")]
        return (*tools, *(_need_of_code(name) for name in usable))

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each code that it can execute, by the need: ``{"code:shop": "code:shop@6ecfbd3f7a3e"}``."""
        usable = [each for each in self.codes if each.problem is None]
        return {need: f"{need}@{each.code}" for each in usable for need in (_need_of_code(each.name),)}

    @cached_property
    def key(self) -> str:
        """A name of what it has: equal for workers that can do each other's work; empty without any code."""
        if not self.provides:
            return ""
        content = json.dumps([sorted(self.provides), sorted(self.versions.values())])
        return hashlib.sha256(content.encode()).hexdigest()[:_KEY_CHARS]


NOTHING_INSTALLED: Final = Installation()


def code_of(need: str) -> str:
    """Return the name of the project or package of a need, as people know it."""
    return need.partition(":")[2]


def version_shown(code_version: str) -> str:
    """Return the digest of ``code:shop@6ecfbd3f7a3e``."""
    return code_version.partition("@")[2]


def describe_needs(needs: Sequence[str]) -> str:
    """Return the needs of a run as people know them: ``the project 'shop'``."""
    names = sorted({code_of(need) for need in needs})
    return f"the project{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _need_of_code(name: str) -> str:
    return f"code:{name.removeprefix('project:')}"
