"""What a tenant's ceilings permit in a document that steers agents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nova_workers.base.config import Settings
from nova_workers.base.errors import Forbidden
from nova_workers.contracts.agents import TRUST_ORDER, Ceilings, Enclosure
from nova_workers.contracts.authors.rights import is_below
from nova_workers.contracts.mcp.servers import StdioServer
from nova_workers.domain.agents.rules.entries import Entry, GrantForms, document_entries, has_ceiling

_SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class CeilingRules:
    """Checks documents against ceilings.

    Attributes:
        workspace_root: The folder of all agents' working directories.
        default_engine: The engine of agents that name none.
    """

    workspace_root: Path
    default_engine: str

    @classmethod
    def of(cls, settings: Settings) -> CeilingRules:
        """Return the rules of a fleet."""
        return cls(settings.workspace_root, settings.default_engine)

    def enclosure(self, tenant_id: str, ceilings: Ceilings | None) -> Enclosure | None:
        """Return the bounds of what runs for a tenant; None without ceilings."""
        if ceilings is None:
            return None
        return Enclosure(self.roots(tenant_id, ceilings), sandbox=ceilings.sandbox, egress=ceilings.egress)

    def roots(self, tenant_id: str, ceilings: Ceilings) -> tuple[str, ...]:
        """Return the directories below which a tenant's agents may have directories: its own comes first."""
        return (str(self.workspace_root / tenant_id), *ceilings.directories)

    def check(
        self,
        tenant_id: str,
        document: BaseModel,
        ceilings: Ceilings | None,
        *,
        grants: GrantForms | None = None,
        cwd: str | None = None,
        at: str = "",
    ) -> None:
        """Check a document: when it is written, and of an agent also when a run begins.

        Args:
            tenant_id: Whose it is.
            document: The document, which is valid. The rights of its fields name the ceilings that bound them.
            ceilings: None permits everything.
            grants: Reads the configurations of an agent's capabilities.
            cwd: A working directory that a run has in place of the agent's own.
            at: Where the document is in its request, with a dot at the end.

        Raises:
            Forbidden: It exceeds a ceiling; names the field.
        """
        if ceilings is None:
            return
        roots = self.roots(tenant_id, ceilings)
        for path, entry in document_entries(document, grants, aim=has_ceiling):
            self._check_entry(f"{at}{path}", entry, ceilings, roots)
        if cwd is not None:
            _check_directories("cwd", cwd, roots)

    def _check_entry(self, field: str, entry: Entry, ceilings: Ceilings, roots: tuple[str, ...]) -> None:
        value = entry.value
        match entry.right.ceiling:
            case "trust" if TRUST_ORDER.index(value) > TRUST_ORDER.index(ceilings.trust):
                raise _exceeds(field, f"the agent has {value!r}, and the ceiling of its tenant is {ceilings.trust!r}")
            case "engines" if not self.permits_engine(ceilings, value or self.default_engine):
                permitted = "all but 'scripted'" if ceilings.engines is None else ", ".join(ceilings.engines) or "none"
                raise _exceeds(
                    field, f"{value or self.default_engine!r} is not among the engines of its tenant: {permitted}"
                )
            case "directories":
                _check_directories(field, value, roots)
            case "mcp_commands" if isinstance(entry.owner, StdioServer):
                line = entry.owner.line()
                if not any(fnmatchcase(line, pattern) for pattern in ceilings.mcp_commands):
                    raise _exceeds(field, f"its tenant may not start {line!r} as an MCP server")
            case _:
                pass

    def permits_engine(self, ceilings: Ceilings | None, engine: str) -> bool:
        """Return whether a tenant's agents and work orders may use an engine."""
        if ceilings is None:
            return True
        if ceilings.engines is None:
            return engine != _SCRIPTED or self.default_engine == _SCRIPTED
        return engine in ceilings.engines


def _check_directories(field: str, value: Any, roots: Iterable[str]) -> None:
    for place, path in _paths(field, value):
        if not any(is_below(root, path) for root in roots):
            raise _exceeds(place, f"{path!r} is outside the directories of its tenant: {', '.join(roots)}")


def _paths(field: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif value is not None:
        yield from ((f"{field}.{index}", path) for index, path in enumerate(value))


def _exceeds(field: str, why: str) -> Forbidden:
    return Forbidden(
        f"{field}: {why}. The operator sets the ceilings of a tenant: `nova tenants ceilings TENANT`.", field=field
    )
