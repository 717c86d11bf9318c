"""Lists of conversations: by the day on which they began in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from nova_workers.console.chat.listing import Chosen, by_day
from nova_workers.contracts.http.wire import ThreadView


def _begun(at: str) -> ThreadView:
    when = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return ThreadView(
        id=f"thr_{at}", agent_id="nova", title=None, label=None, opening=None, head_turn_id=None, active_run_id=None,
        waiting_for=None, turn_count=0, forked_from_thread_id=None, forked_from_turn_id=None, orchestration_id=None,
        metadata={}, created_at=when, updated_at=when,
    )  # fmt: skip


def test_conversations_are_grouped_by_days_of_the_zone_newest_first() -> None:
    begun = ["2026-11-28T23:30", "2026-11-28T22:30", "2026-11-27T23:10", "2026-11-25T12:00", "2025-12-31T12:00"]
    now = datetime(2026, 11, 29, 8, tzinfo=UTC)
    groups = by_day([_begun(at) for at in begun], ZoneInfo("Europe/Berlin"), now)
    assert [(group.title, [thread.id for thread in group.threads]) for group in groups] == [
        ("Today", ["thr_2026-11-28T23:30"]),
        ("Yesterday", ["thr_2026-11-28T22:30", "thr_2026-11-27T23:10"]),
        ("Wednesday, 25 November", ["thr_2026-11-25T12:00"]),
        ("Wednesday, 31 December 2025", ["thr_2025-12-31T12:00"]),
    ]


def test_the_tabs_of_lists_keep_the_agent() -> None:
    assert Chosen().tabs()[:2] == [("All", "/chat"), ("Mine", "/chat?of=mine")]
    assert dict(Chosen("mine", "nova").tabs())["Channels"] == "/chat?of=channels&agent=nova"
