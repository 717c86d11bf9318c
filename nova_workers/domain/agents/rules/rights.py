"""The rights of an agent over other agents. Pure.

An agent must not create or change one with more rights than its own, or it could obtain rights that people did not give
it:

- Trust, permissions, directories, engine, bounds and retention are set by people. An agent created by an agent is in
  the sandbox, with the creator's permissions, bounds and retention, and no directories.
- It grants capabilities and skills that it has itself, with its own tools and configuration of them.
- It changes and deletes agents whose trust is not above its own, and itself only with its own tools.
- What another agent is to do, it writes only if it has every right of that agent: native tools, directories,
  capabilities with their configuration (and so secrets, servers and agents to ask), skills, and calls that need no
  permission. Else that agent would do for it what it may not do itself. It may take such rights away first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from nova_workers.base.errors import Forbidden
from nova_workers.contracts.agents import TRUST_ORDER, AgentSpec, CapabilityGrant
from nova_workers.contracts.authors.rights import is_below
from nova_workers.contracts.http.wire import AgentView
from nova_workers.contracts.native import SHELL_TOOL, native_tools
from nova_workers.domain.agents.rules.entries import GrantForms

GrantWish = Mapping[str, Sequence[str] | None]
"""Capabilities to grant, with their tools; None is all that the grantor has."""


class GrantChecks(GrantForms, Protocol):
    """The registry of capabilities, as far as writing agents is about it."""

    def validate(self, spec: AgentSpec) -> None:
        """Raise `InvalidInput` for unknown capabilities, tools and configurations."""
        ...


class GrantRules(GrantChecks, Protocol):
    """The registry of capabilities, as far as rights are about it."""

    def covers(self, name: str, own: CapabilityGrant, other: CapabilityGrant) -> bool:
        """Return whether a grant of a capability gives all that another one gives."""
        ...

    def tool_names(self, spec: AgentSpec) -> Collection[str] | None:
        """Return the names of the tools of an agent's capabilities; None if some are unknown."""
        ...


def check_manages(manager: AgentView, target: AgentView) -> None:
    """Check that an agent may change or delete another.

    Raises:
        Forbidden: It may not; the message says why.
    """
    if manager.id == target.id:
        raise Forbidden("You cannot manage yourself. The tools of the capability `self` change what of you is yours.")
    if TRUST_ORDER.index(target.spec.trust) > TRUST_ORDER.index(manager.spec.trust):
        raise Forbidden(
            f"{target.id!r} has the trust {target.spec.trust!r} and you have {manager.spec.trust!r}: you can only "
            "change agents of no more trust than your own. Ask a person."
        )


def check_change(manager: AgentSpec, before: AgentSpec | None, after: AgentSpec, rules: GrantRules) -> None:
    """Check that an agent may give another one a configuration, beyond what `check_manages` and `granted` check.

    Args:
        manager: The agent that changes the other.
        before: The current configuration; None for a new agent.
        after: The new one.
        rules: Compares grants.

    Raises:
        Forbidden: It grants a skill that it lacks itself, or writes what an agent does that has rights which it lacks;
            the message names them.
    """
    known = {*manager.skills, *(() if before is None else before.skills)}
    for index, skill in enumerate(after.skills):
        if skill not in known:
            raise Forbidden(
                f"skills.{index}: you can only grant skills that you have yourself, and {skill!r} is none of them. Ask "
                "a person to give it to you, or to the agent."
            )
    if before is not None and after == before.model_copy(
        update={"capabilities": after.capabilities, "skills": after.skills}
    ):
        return
    lacking = list(_lacking(manager, after, rules))
    if lacking:
        raise Forbidden(
            f"You may not write what this agent does, since it has rights that you lack: {', '.join(lacking)}. Take "
            "those capabilities and skills from it in the same call, or ask a person."
        )


def _lacking(manager: AgentSpec, target: AgentSpec, rules: GrantRules) -> Iterator[str]:
    """Yield the rights that the target has and the manager lacks."""
    own_tools = native_tools(manager.trust, manager.native_tools)
    tools = native_tools(target.trust, target.native_tools)
    yield from (f"the tool {tool}" for tool in tools if tool not in own_tools)
    for path in target.directories:
        if not any(is_below(own, path) for own in manager.directories):
            yield f"the directory {path!r}"
    for name, grant in target.capabilities.items():
        own = manager.capabilities.get(name)
        if own is None:
            yield f"the capability {name!r}"
        elif not rules.covers(name, own, grant):
            yield f"tools or a configuration of the capability {name!r}"
    yield from (f"the skill {skill!r}" for skill in target.skills if skill not in manager.skills)
    if target.permissions != manager.permissions:
        named = rules.tool_names(target)
        restricted = [rule.tool for rule in manager.permissions.approvals if rule.decision != "always"]
        if restricted and (
            named is None or any(fnmatchcase(tool, rule) for tool in (*tools, *named) for rule in restricted)
        ):
            yield "calls without the permission that yours need"
        own_shell = manager.permissions
        is_bounded = own_shell.deny_commands or own_shell.ask_commands or own_shell.unlisted_commands != "allow"
        if SHELL_TOOL in tools and is_bounded:
            yield "shell commands with other permissions than yours"


def inherited(maker: AgentSpec) -> dict[str, object]:
    """Return the fields that a new agent inherits from its creator."""
    return {
        "trust": "sandbox",
        "permissions": maker.permissions,
        "max_turns": maker.max_turns,
        "max_tokens": maker.max_tokens,
        "token_budget": maker.token_budget,
        "cost_budget_usd": maker.cost_budget_usd,
        "timeout_s": maker.timeout_s,
        "max_running": maker.max_running,
        "max_cost_usd_per_day": maker.max_cost_usd_per_day,
        "retention": maker.retention,
    }


def granted(wish: GrantWish, manager: AgentSpec, target: AgentSpec) -> dict[str, CapabilityGrant]:
    """Return the grants for a wish.

    The target may keep what it already has, in whole or in part.

    Args:
        wish: All capabilities that the target is to have.
        manager: The agent that grants.
        target: The current configuration of the agent that gets them.

    Raises:
        Forbidden: The manager does not have it itself; names the capability or tool.
    """
    return {name: _grant(name, tools, manager, target) for name, tools in wish.items()}


def _grant(name: str, tools: Sequence[str] | None, manager: AgentSpec, target: AgentSpec) -> CapabilityGrant:
    present, own = target.capabilities.get(name), manager.capabilities.get(name)
    if present is not None and _within(tools, present):
        return present if tools is None else present.model_copy(update={"tools": tuple(tools)})
    if own is None:
        known = ", ".join(manager.capabilities) or "none"
        raise Forbidden(f"capabilities.{name}: you can only grant what you have yourself, which is {known}.")
    if not _within(tools, own):
        raise Forbidden(
            f"capabilities.{name}: you can only grant the tools that you have yourself, which are "
            f"{', '.join(own.tools or ())}."
        )
    if target.permissions != manager.permissions and any(
        rule.decision != "always" for rule in manager.permissions.approvals
    ):
        raise Forbidden(
            f"capabilities.{name}: some of your calls need a person's permission, and those of this agent would not. "
            "Ask a person to grant it."
        )
    return own if tools is None else own.model_copy(update={"tools": tuple(tools)})


def _within(tools: Sequence[str] | None, grant: CapabilityGrant) -> bool:
    """Return whether a grant contains these tools; None means all of the grant."""
    return tools is None or grant.tools is None or set(tools) <= set(grant.tools)
