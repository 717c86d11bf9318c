"""What a tenant's ceilings, and the scope of a key, permit in an agent's configuration. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final, Literal, cast

from nova_workers.config import Settings
from nova_workers.contracts.agents import TRUST_ORDER, AgentSpec, Ceilings
from nova_workers.contracts.mcp.servers import StdioServer
from nova_workers.errors import Forbidden
from nova_workers.vocabulary import TrustLevel

__all__ = ["AuthorRights", "CeilingRules", "GrantedSecrets", "check_author", "check_steers", "exceeds_engines"]

_USUAL_TRUST = "controlled"
"""The highest trust that a key without the scope `trust` gives."""
_HARMLESS: Final = frozenset(
    {
        # Bounds and sampling.
        *("max_turns", "max_tokens", "token_budget", "cost_budget_usd", "max_cost_usd_per_day", "timeout_s"),
        *("max_running", "temperature", "thinking_budget_tokens", "retention"),
        # Other agents read it, not the agent itself.
        "description",
        # Checked by themselves: less of them is harmless.
        *("trust", "directories"),
    }
)
_STEERING: Final = tuple(field for field in AgentSpec.model_fields if field not in _HARMLESS)
"""What an agent does, and which of its tools it uses without permission. A new field is one of them unless it is named
above."""
_SCRIPTED = "scripted"
_Scope = Literal["trust", "secrets"]


@dataclass(frozen=True, slots=True)
class CeilingRules:
    """Checks configurations against ceilings.

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

    def roots(self, tenant_id: str, ceilings: Ceilings) -> tuple[str, ...]:
        """Return the directories below which a tenant's agents may have directories: its own comes first."""
        return (str(self.workspace_root / tenant_id), *ceilings.directories)

    def check(self, tenant_id: str, spec: AgentSpec, ceilings: Ceilings | None, *, cwd: str | None = None) -> None:
        """Check a configuration: when it is written, and when a run begins.

        Args:
            tenant_id: Whose it is.
            spec: The configuration, which is valid.
            ceilings: None permits everything.
            cwd: A working directory that a run has in place of the agent's own.

        Raises:
            Forbidden: It exceeds a ceiling; names the field.
        """
        if ceilings is None:
            return
        if TRUST_ORDER.index(spec.trust) > TRUST_ORDER.index(ceilings.trust):
            raise _exceeds(
                "trust", f"the agent has {spec.trust!r}, and the ceiling of its tenant is {ceilings.trust!r}"
            )
        engine = spec.engine or self.default_engine
        if not self.permits_engine(ceilings, engine):
            raise exceeds_engines("engine", engine, ceilings)
        roots = self.roots(tenant_id, ceilings)
        for field, path in _paths(spec, cwd):
            if not _is_within(path, roots):
                raise _exceeds(field, f"{path!r} is outside the directories of its tenant: {', '.join(roots)}")
        for field, line in _commands(spec):
            if not any(fnmatchcase(line, pattern) for pattern in ceilings.mcp_commands):
                raise _exceeds(field, f"its tenant may not start {line!r} as an MCP server")

    def permits_engine(self, ceilings: Ceilings | None, engine: str) -> bool:
        """Return whether a tenant's agents and work orders may use an engine."""
        if ceilings is None:
            return True
        if ceilings.engines is None:
            return engine != _SCRIPTED or self.default_engine == _SCRIPTED
        return engine in ceilings.engines


@dataclass(frozen=True, slots=True)
class AuthorRights:
    """What the author of a configuration may give an agent, and write for one that has it.

    Attributes:
        trust: More trust than ``controlled``, and directories.
        secrets: Secrets, for its tools.
    """

    trust: bool = False
    secrets: bool = False


@dataclass(frozen=True, slots=True)
class GrantedSecrets:
    """Names of the secrets that an agent's tools may use, or patterns of names: before a change, and after it."""

    before: Collection[str] = ()
    after: Collection[str] = ()


def check_author(
    rights: AuthorRights, before: AgentSpec | None, after: AgentSpec, secrets: GrantedSecrets | None = None
) -> None:
    """Check that a change gives an agent nothing that its author may not give.

    Nor does the author write what an agent does, or may do without permission, that has such a right and keeps it: the
    agent would do with it what the author wrote.

    Args:
        rights: Of the author.
        before: What the agent has already, and keeps; None for a new agent.
        after: The new configuration.
        secrets: That the two have.

    Raises:
        Forbidden: It does; names the scope that permits it.
    """
    if not rights.trust:
        _check_trust(before, after)
    if not rights.secrets and secrets is not None:
        _check_secrets(before, after, secrets)


def check_steers(rights: AuthorRights, agent_id: str, spec: AgentSpec, secrets: Collection[str], *, field: str) -> None:
    """Check that an author may write a part of what an agent does that is kept elsewhere, such as a skill.

    Args:
        rights: Of the author.
        agent_id: The agent.
        spec: Its configuration.
        secrets: Names of the secrets that its tools may use, or patterns of names.
        field: Of the request, which has what is written.

    Raises:
        Forbidden: The agent has a right that the author lacks; names the scope that permits it.
    """
    if not rights.trust and (_is_above_usual(spec.trust) or spec.directories):
        what = f"the trust {spec.trust!r} and {len(spec.directories)} directories"
        raise _needs_scope("trust", field, f"writing it for the agent {agent_id!r} with {what}")
    if not rights.secrets and secrets:
        raise _needs_scope("secrets", field, f"writing it for the agent {agent_id!r}, which uses secrets,")


def _check_secrets(before: AgentSpec | None, after: AgentSpec, secrets: GrantedSecrets) -> None:
    for name in sorted(set(secrets.after) - set(secrets.before)):
        raise _needs_scope("secrets", "capabilities", f"giving an agent the secret {name!r}")
    if before is not None and secrets.after:
        named = ", ".join(map(repr, sorted(secrets.after)))
        _check_steering("secrets", before, after, f"the secrets {named}")


def _check_trust(before: AgentSpec | None, after: AgentSpec) -> None:
    trust = None if before is None else before.trust
    known = () if before is None else before.directories
    if after.trust != trust and _is_above_usual(after.trust):
        raise _needs_scope("trust", "trust", f"giving an agent the trust {after.trust!r}")
    for index, path in enumerate(after.directories):
        if not _is_within(path, known):
            raise _needs_scope("trust", f"directories.{index}", f"giving an agent the directory {path!r}")
    if before is not None and (_is_above_usual(after.trust) or after.directories):
        _check_steering("trust", before, after, f"the trust {after.trust!r} and {len(after.directories)} directories")


def _check_steering(scope: _Scope, before: AgentSpec, after: AgentSpec, rights: str) -> None:
    for field in _STEERING:
        if getattr(before, field) != getattr(after, field):
            raise _needs_scope(scope, field, f"writing it for an agent with {rights}")


def _is_above_usual(trust: TrustLevel) -> bool:
    return TRUST_ORDER.index(trust) > TRUST_ORDER.index(_USUAL_TRUST)


def _paths(spec: AgentSpec, cwd: str | None) -> Iterator[tuple[str, str]]:
    for index, path in enumerate(spec.directories):
        yield f"directories.{index}", path
    for field, server in _stdio_servers(spec):
        if server.cwd is not None:
            yield f"{field}.cwd", server.cwd
    if cwd is not None:
        yield "cwd", cwd


def _commands(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    for field, server in _stdio_servers(spec):
        yield f"{field}.command", server.line()


def _stdio_servers(spec: AgentSpec) -> Iterator[tuple[str, StdioServer]]:
    """Yield the programs of a valid grant."""
    grant = spec.capabilities.get("mcp")
    servers = {} if grant is None else cast(Mapping[str, Mapping[str, object]], grant.config.get("servers", {}))
    for name, server in servers.items():
        if server.get("type") == "stdio":
            yield f"capabilities.mcp.config.servers.{name}", StdioServer.model_validate(server)


def _is_within(path: str, roots: Iterable[str]) -> bool:
    pure = PurePosixPath(path)
    return ".." not in pure.parts and any(pure.is_relative_to(root) for root in roots)


def exceeds_engines(field: str, engine: str, ceilings: Ceilings) -> Forbidden:
    """Return the refusal of an engine."""
    permitted = "all but 'scripted'" if ceilings.engines is None else ", ".join(ceilings.engines) or "none"
    return _exceeds(field, f"{engine!r} is not among the engines of its tenant: {permitted}")


def _exceeds(field: str, why: str) -> Forbidden:
    return Forbidden(
        f"{field}: {why}. The operator sets the ceilings of a tenant: `nova tenants ceilings TENANT`.", field=field
    )


def _needs_scope(scope: _Scope, field: str, what: str) -> Forbidden:
    return Forbidden(
        f"{field}: {what} needs a key with the scope {scope!r}. Use one, or ask the person who makes keys for it.",
        field=field,
        needed=scope,
    )
