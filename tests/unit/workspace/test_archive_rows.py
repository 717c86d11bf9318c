"""Validation of an archive's rows: values that readers do not check again are checked at the import."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.agents import AgentSpec
from nova_workers.domain.archive.rules.rows import AgentChecks, checked_row
from nova_workers.domain.archive.sql.tables import KEPT
from tests.requirements import proves
from tests.support.data.archive_rows import MOMENT, SKILL, archive_tables, small_row

_ASKS: dict[str, Any] = {"kind": "user", "question": "Which?"}
_X: dict[str, Any] = {"name": "x"}
_TWICE = [{"title": title, "content": ""} for title in ("Mail", "mail")]


TABLES = archive_tables()


def _any_agent(*_: str | AgentSpec) -> None:
    """Know every capability, and permit every author all."""


def _checked(table: str, row: dict[str, Any]) -> dict[str, Any]:
    return checked_row(TABLES[table], row, AgentChecks(_any_agent, _any_agent))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (small_row("run_waits", status="open"), "run_waits.status: .*'open'"),
        (small_row("run_waits", request={}), "run_waits.request"),
        (small_row("run_waits", request={**_ASKS, "question": ""}), "run_waits.request.user.question"),
        (small_row("run_waits", answer=["yes"]), "run_waits.answer"),
        (small_row("messages", content={"a": 1}), "messages.content: .*list"),
        (small_row("messages", content=["text"]), "messages.content.0"),
        (small_row("messages", content=[{"text": "no type"}]), "messages.content.0: .*type"),
        (small_row("messages", content=[{"type": "text", "text": 5}]), "messages.content.0: .*text"),
        (small_row("messages", content=None), "messages.content"),
        (small_row("messages", role="tool"), "messages.role"),
        (small_row("messages", seq=-1), "messages.seq: -1"),
        (small_row("runs", id="run_8", content="hello"), "runs.content"),
        (small_row("runs", id="run_8", meta=[]), "runs.meta"),
        (small_row("runs", id="run_8", limit_reached="patience"), "runs.limit_reached"),
        (small_row("runs", id="run_8", priority=101), "runs.priority"),
        (small_row("runs", id="run_8", agent_id="x" * 65), "runs.agent_id"),
        (small_row("threads", id="thr_8", fence=2**63 - 1), "threads.fence"),
        (small_row("threads", id="thr_8", next_seq="1"), "threads.next_seq"),
        (small_row("turns", id="turn_8", tools_available={}), "turns.tools_available"),
        (small_row("turns", id="turn_8", cost_usd="NaN"), "turns.cost_usd"),
        (small_row("usage", cost_usd="-5"), "usage.cost_usd"),
        (small_row("usage", input_tokens=2**62), "usage.input_tokens"),
        (small_row("tool_calls", params=[]), "tool_calls.params"),
        (small_row("tool_calls", result={"type": "text"}), "tool_calls.result"),
        (small_row("deliveries", payload=[1]), "deliveries.payload"),
        (small_row("task_changes", details="x"), "task_changes.details"),
        (small_row("tasks", owner_agent_id="Nobody!"), "tasks.owner_agent_id"),
        (small_row("trigger_firings", skip_reason="mood"), "trigger_firings.skip_reason"),
        (small_row("triggers", gate={"kind": "moon"}), "triggers.gate"),
        (small_row("triggers", jitter_s=2**31 - 2), "triggers.jitter_s"),
        (small_row("triggers", jitter_s=86_400, next_fire_at=MOMENT), "triggers.jitter_s"),
        (small_row("triggers", catchup_s=-1), "triggers.catchup_s"),
        (small_row("triggers", prompt=""), "triggers.prompt"),
        (small_row("triggers", max_cost_usd_per_day="NaN"), "triggers.max_cost_usd_per_day"),
        (small_row("triggers", enabled=False, next_fire_at=MOMENT), "triggers.next_fire_at"),
        (small_row("triggers", created_at=None), "triggers.created_at"),
        (small_row("agents", version=0), "agents 'x': version: 0"),
        (small_row("agent_versions", version=-1), "agent_versions 'x': version: -1"),
        (small_row("agents", id="x" * 65), "no id of an agent"),
        (small_row("agents", id="seed"), "agents 'seed': id"),
        (small_row("agents", spec={**_X, "directories": ["../up"]}), "agents 'x': directories.0"),
        (small_row("agents", spec={**_X, "responsibilities": _TWICE}), "responsibilities.1.title"),
        (small_row("agents", spec={**_X, "retention": {"after_days": 30.0, "keep": "none"}}), "retention.after_days"),
        (small_row("agent_versions", spec={**_X, "max_turns": "20"}), "spec.max_turns"),
    ],
)
@proves("archive.whole")
def test_a_value_that_readers_could_not_handle_is_refused(row: tuple[str, dict[str, Any]], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        _checked(*row)


@pytest.mark.parametrize("table", [kept.name for kept in KEPT if small_row(kept.name)[1]])
def test_a_valid_row_is_unchanged(table: str) -> None:
    _, row = small_row(table)
    checked = _checked(table, row)
    assert {name: checked[name] for name in row} == row


def test_a_skills_front_matter_comes_from_its_text() -> None:
    checked = _checked(*small_row("skills", description="Not this.", body="", front_matter={}))
    assert (checked["description"], checked["skill_md"]) == ("Reads PDFs.", SKILL)
