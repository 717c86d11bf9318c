"""Sizes of the measurements."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes: enough for steady percentiles in under eight minutes, or small ones for a check."""

    accepts_s: float = 12.0
    accepts_per_s: float = 50.0
    waits: int = 200
    streams: int = 200
    token_streams: int = 8
    tokens: int = 200
    tool_calls: int = 500
    code_steps: int = 300
    turns_s: float = 12.0
    clients: int = 32
    concurrent: int = 200
    many_concurrent: int = 1_000
    turn_s: float = 2.0
    in_flight: int = 500
    lost_runs: int = 40
    lost_turn_s: float = 8.0
    lease_ttl_s: float = 30.0
    finished_runs: int = 1_000_000
    few_finished_runs: int = 1_000
    claims: int = 400
    change_blocks: int = 24
    change_turns: int = 100
    queued: int = 10_000
    beside_a_backlog: int = 60
    picks: int = 100
    innocents: int = 200
    cached_turns: int = 50
    searched_messages: int = 100_000
    searches: int = 100
    exact_searches: int = 50
    inserted_vectors: int = 2_000
    backfilled_runs: int = 500_000
    backfill_s: float = 8.0
    idle_ticks: int = 100
    idle_triggers: int = 100_000
    due_triggers: int = 10_000
    renamed_runs: int = 2_000
    trees: int = 20
    tree_agents: int = 10
    tree_latencies: int = 60
    orders: int = 100
    cached_orders: int = 500
    warm_starts: int = 3
    first_starts: int = 3
    first_messages: int = 14
    settled_s: float = 8.0
    notices: int = 10
    imports: int = 3
    planned_agents: int = 500
    plans: int = 3
    inits: int = 2
    rounds: int = 3
    scaling_workers: tuple[int, ...] = (1, 2, 4, 8)
    scaling_slots: int = 5
    scaling_apis: tuple[int, ...] = (1, 2, 4)
    scaling_clients: int = 8
    scaling_window_s: float = 10.0
    scaling_idle_s: float = 4.0
    bare_tasks: int = 4_000
    bare_pings: int = 300

    @classmethod
    def quick(cls) -> "Sizes":
        """Return sizes for a quick run of two minutes; the lease is shorter than the default."""
        return cls(
            accepts_s=4, waits=80, tool_calls=200, streams=60, token_streams=4, tokens=80, turns_s=5, concurrent=100,
            many_concurrent=400, code_steps=100,
            in_flight=200, lost_runs=10, lost_turn_s=5, lease_ttl_s=6, finished_runs=100_000, claims=200,
            queued=10_000, beside_a_backlog=20, picks=50, innocents=100, change_blocks=12,
            searched_messages=20_000, searches=40, inserted_vectors=500, backfilled_runs=50_000, backfill_s=4,
            idle_ticks=50, idle_triggers=100_000, due_triggers=5_000, renamed_runs=500,
            trees=8, tree_latencies=20, orders=40, cached_orders=200, bare_tasks=1_000, bare_pings=100,
            warm_starts=2, first_starts=1, notices=4, imports=2, plans=2,
        )  # fmt: skip

    @classmethod
    def tiny(cls) -> "Sizes":
        """Return sizes that only prove that a measurement runs."""
        return cls(
            accepts_s=0.4, waits=3, streams=2, token_streams=2, tokens=5, turns_s=0.5, clients=2, concurrent=3,
            many_concurrent=4, turn_s=0.1, in_flight=4, lost_runs=4, lost_turn_s=5, lease_ttl_s=3, finished_runs=200,
            few_finished_runs=100, claims=3, tool_calls=3, code_steps=3,
            queued=20, beside_a_backlog=2, picks=3,
            searched_messages=300, searches=2, exact_searches=2, inserted_vectors=20,
            bare_tasks=20, bare_pings=3, innocents=2, cached_turns=3, change_blocks=1, change_turns=3,
            backfilled_runs=400, backfill_s=3, idle_ticks=3, idle_triggers=200, due_triggers=50,
            renamed_runs=60, trees=2, tree_agents=3, tree_latencies=2, orders=2, cached_orders=3,
            warm_starts=0, first_starts=1, first_messages=2, settled_s=0.1, notices=1, imports=1, rounds=1,
            planned_agents=3, plans=1, inits=1,
            scaling_workers=(1, 2), scaling_slots=2, scaling_apis=(1, 2), scaling_clients=2, scaling_window_s=0.5,
            scaling_idle_s=0.2,
        )  # fmt: skip
