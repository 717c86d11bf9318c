"""The rights of an agent over other agents. Pure.

An agent must not create or change one with more rights than its own, or it could obtain rights that people did not give
it:

- Trust, permissions, directories, engine, bounds and retention are set by people. An agent created by an agent is in
  the sandbox, with the creator's permissions, bounds and retention, and no directories.
- It grants capabilities that it has itself, with its own tools and configuration of them.
- It changes and deletes agents whose trust is not above its own, and itself only with its own tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.http.wire import AgentView
from nova_workers.errors import Forbidden

__all__ = ["GrantWish", "check_manages", "granted", "inherited"]

GrantWish = Mapping[str, Sequence[str] | None]
"""Capabilities to grant, with their tools; None is all that the grantor has."""

_TRUST_ORDER = ("sandbox", "controlled", "unrestricted")


def check_manages(manager: AgentView, target: AgentView) -> None:
    """Check that an agent may change or delete another.

    Raises:
        Forbidden: It may not; the message says why.
    """
    if manager.id == target.id:
        raise Forbidden("You cannot manage yourself. The tools of the capability `self` change what of you is yours.")
    if _TRUST_ORDER.index(target.spec.trust) > _TRUST_ORDER.index(manager.spec.trust):
        raise Forbidden(
            f"{target.id!r} has the trust {target.spec.trust!r} and you have {manager.spec.trust!r}: you can only "
            "change agents of no more trust than your own. Ask a person."
        )


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
    """Whether a grant contains these tools; None means all of the grant."""
    return tools is None or grant.tools is None or set(tools) <= set(grant.tools)
