"""Clocks that are off, days on which clocks change, and a very long queue."""

from __future__ import annotations

from tests.chaos.runner.scenarios.registry import Stage, scenario
from tests.support.processes.clock_skew import can_skew_clocks, skewed_clock
from tests.support.processes.fleet import add_api_key

_OSLO: dict[str, list[list[str]]] = {
    # A fixed time that does not exist on the 29th of March, or comes twice on the 25th of October, fires once.
    "30 2 * * *": [
        ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"],
        ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"],
    ],
    # An interval fires once for the hour that does not exist, and in both passes of the hour that comes twice.
    "*/30 2 * * *": [
        ["2026-03-28T01:00Z", "2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:00Z", "2026-03-30T00:30Z"],
        [
            *("2026-10-24T00:00Z", "2026-10-24T00:30Z"),
            *("2026-10-25T00:00Z", "2026-10-25T00:30Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z"),
            *("2026-10-26T01:00Z", "2026-10-26T01:30Z"),
        ],
    ],
}
"""By cron line: its occurrences in Oslo around both days on which clocks change."""

# As if no process had run since: the trigger catches up with each occurrence.
_SINCE = """
UPDATE triggers
   SET enabled = true, catchup_s = 2000000000,
       next_slot_at = $2::text::timestamptz, next_fire_at = $2::text::timestamptz,
       ends_at = $3::text::timestamptz + interval '1 h'
 WHERE id = $1
"""
_FILLER_RUNS = 100_000
_FILLER_AT_ONCE = 4

# Each on a thread of its own, so that nothing but the cap of their tenant holds them back.
_FILL = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || $1 || lpad(i::text, 8, '0'), $1, 'nova', 2 FROM generate_series(1, $2::int) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT replace(id, 'thr_', 'run_'), tenant_id, id, agent_id, 1, '[{"type": "text", "text": "One of very many."}]'
  FROM made
"""


@scenario("workers", "beats", "apis", proves=("I1", "I5"), is_brief=False)
async def clocks_an_hour_apart(stage: Stage) -> None:
    """A worker's clock is an hour ahead, a beat's and an API's an hour behind. Needs a C compiler."""
    if not can_skew_clocks():
        stage.say("left out: a wrong clock needs a C compiler, on Linux")
        return
    ahead, behind = (skewed_clock(stage.fleet.home, seconds) for seconds in (3600, -3600))
    skewed = {"worker-0": ahead, "beat-0": behind, "api-0": behind}
    for name, extra in skewed.items():
        stage.fleet.members[name].extra = dict(extra)
        stage.fleet.members[name].kill()
    await stage.hold(15, 25)
    for name in skewed:
        stage.fleet.members[name].extra = {}
        stage.fleet.members[name].kill()
    await stage.hold(1)


@scenario("beats", proves=("I5",))
async def days_on_which_clocks_change(stage: Stage) -> None:
    """Triggers catch up with both days on which clocks change, while their beats are killed."""
    for line, days in _OSLO.items():
        for occurrences in days:
            trigger = await stage.fleet.post("/v1/triggers", _trigger(line, occurrences))
            await stage.fleet.sql(_SINCE, trigger["id"], occurrences[0], occurrences[-1])
    for _ in range(3):
        await stage.hold(0.5, 1.5)
        stage.any_of("beat").kill()


@scenario("tenants", proves=("I4",), in_mix=False, is_brief=False, breaks=False)
async def a_hundred_thousand_queued_runs(stage: Stage) -> None:
    """Another tenant has 100,000 queued runs, of which four may run at once; they wait, and delay nothing else."""
    _, tenant_id = await add_api_key(stage.fleet.servers.database_url)
    await stage.fleet.sql("UPDATE tenants SET max_running = $2 WHERE id = $1", tenant_id, _FILLER_AT_ONCE)
    await stage.fleet.sql(_FILL, tenant_id, _FILLER_RUNS)
    await stage.hold(60)
    await stage.fleet.sql("INSERT INTO switches (scope, tenant_id, target) VALUES ('tenant', $1, '')", tenant_id)


def _trigger(line: str, occurrences: list[str]) -> dict[str, object]:
    return {
        "agent_id": "chaos",
        "kind": "cron",
        "schedule": line,
        "timezone": "Europe/Oslo",
        "title": " ".join(("occurrences", *occurrences)),
        "prompt": "An occurrence.",
        "overlap": "queue",
        "catchup": "each",
        "enabled": False,
        "pause_after_failures": 0,
    }
