"""Which children may take another task: none that holds more than the task is granted, or less than it names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nova_workers.base.vocabulary import AgentRole, PermissionMode
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.orchestration import AgentDescriptor, SpawnRequest
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea
from nova_workers.domain.orchestrations.rules.spawning.granting import Giver, Granted
from nova_workers.domain.orchestrations.rules.spawning.preparing import PreparedSpawn
from nova_workers.domain.orchestrations.rules.spawning.reusing import misfits

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def holds(*native: str, **capabilities: list[str] | None) -> AgentSpec:
    """Return a configuration with native tools, and capabilities, whole or with some of their tools."""
    grants = {
        name: CapabilityGrant(tools=None if tools is None else tuple(tools)) for name, tools in capabilities.items()
    }
    return AgentSpec(name="a", trust="controlled", model="m", native_tools=native, capabilities=grants)


def child(
    role: AgentRole = "WORKER", plugins: tuple[str, ...] = (), mode: PermissionMode = "DEFAULT"
) -> AgentDescriptor:
    return AgentDescriptor(
        **dict.fromkeys(("id", "tenant_id", "orchestration_id", "parent_id", "thread_id", "run_id", "prompt"), "x"),
        **dict.fromkeys(("expert_id", "category", "summary", "error_code", "error_message", "progress"), None),
        **dict.fromkeys(("state_at", "created_at"), NOW),
        role=role,
        state="COMPLETED",
        depth=1,
        name="a",
        tools=(),
        model="m",
        cwd="/a",
        plugins=plugins,
        permission_mode=mode,
        activations=1,
        artifacts={},
        ended_at=NOW,
    )


def wrong(held: AgentSpec, fresh: AgentSpec, agent: AgentDescriptor | None = None, **request: Any) -> list[str]:
    plugins = request.pop("plugins", ())
    held_fresh = Granted(
        servers={name: {} for name in plugins},
        cwd=request.get("cwd"),
        permission_mode=request.get("permission_mode", "DEFAULT"),
    )
    giver = Giver(fresh, {}, WorkArea("/", "/"))
    prepared = PreparedSpawn(SpawnRequest("Do it.", **request), held_fresh, fresh, ChosenModel("m", None), "a", giver)
    return list(misfits(agent or child(), held, prepared))


def test_an_equal_child_and_one_that_holds_less_than_the_role_gets_fit() -> None:
    fresh = holds("Read", "Write", notes=None, tasks=["task_list", "task_get"])
    assert wrong(fresh, fresh) == []
    assert wrong(holds("Read", notes=["note_read"], tasks=["task_list"]), fresh) == []


@pytest.mark.parametrize(
    ("held", "fresh", "named"),
    [
        (holds("Read", "Bash"), holds("Read"), "Bash"),
        (holds(notes=None), holds(), "notes"),
        (holds(notes=None), holds(notes=["note_read"]), "notes"),
        (holds(notes=["note_read", "note_delete"]), holds(notes=["note_read"]), "note_delete"),
    ],
)
def test_a_child_that_holds_more_does_not_fit(held: AgentSpec, fresh: AgentSpec, named: str) -> None:
    assert wrong(held, fresh) == [f"it holds {named}, which this request does not grant; name them in `tools`"]


def test_a_child_without_a_tool_that_is_named_does_not_fit() -> None:
    assert wrong(holds("Read"), holds("Read", "Write", notes=["note_read"]), tools=("Read", "Write", "note_read")) == [
        "it does not hold Write, notes"
    ]


def test_a_child_with_another_configuration_of_a_capability_does_not_fit() -> None:
    fresh = holds(notes=None)
    held = fresh.model_copy(update={"capabilities": {"notes": CapabilityGrant(config={"all": True})}})
    assert "it holds notes" in wrong(held, fresh)[0]


def test_a_child_with_other_bounds_or_other_plugins_or_more_permission_does_not_fit() -> None:
    held = holds("Read")
    narrowed = held.model_copy(update={"directories": ("/a",)})
    assert wrong(held, narrowed) == ["the agent of this orchestration has other bounds since it was spawned"]
    assert wrong(held, held, child(plugins=("web",))) == [
        "it has the plugins web, which this request does not give; name them in `mcp_servers`"
    ]
    assert wrong(held, held, child(plugins=("web",)), plugins=("other", "web")) == []
    assert wrong(held, held, permission_mode="PLAN") == ["its permission mode is DEFAULT, and you may only read"]
    assert wrong(held, held, child(mode="PLAN"), permission_mode="PLAN") == []
    form = {"type": "object"}
    assert wrong(held, held, output_schema=form) == ["its result has no `output_schema`"]
    assert wrong(held.model_copy(update={"output_schema": form}), held) == ["its result has another form"]
    assert wrong(held, held, cwd="/b") == ["its working directory is '/a'"]


@pytest.mark.parametrize(("own", "wanted"), [("REVIEWER", "REVIEWER"), ("REVIEWER", "WORKER"), ("WORKER", "REVIEWER")])
def test_a_reviewer_is_never_reused(own: AgentRole, wanted: AgentRole) -> None:
    assert wrong(holds(), holds(), child(own), role=wanted) == ["reviewers are always fresh"]


def test_an_expert_is_no_worker() -> None:
    assert wrong(holds(), holds(), child("EXPERT")) == ["its role is EXPERT"]
