"""The contract suite on the `claude_agent` engine: the real program, over HTTP to a local model server."""

from __future__ import annotations

import os

from nova_workers.engines.claude_agent import ClaudeAgentEngine
from tests.contract.engines.stage import WireStage
from tests.support.servers.model_server import ModelServer

NOT_AGAIN = frozenset(
    {
        "test_a_call_in_flight_is_interrupted_unless_it_is_idempotent",
        "test_a_call_that_ends_while_the_turn_is_being_stopped_keeps_its_result",
        "test_a_journal_that_ended_the_turn_is_only_read",
        "test_a_lost_run_stops_without_another_callback",
        "test_a_resumed_turn_keeps_counting_steps_and_calls",
        "test_a_turn_needs_no_callbacks",
        "test_an_abort_before_the_start_calls_no_model",
        "test_calls_are_committed_before_the_first_of_them_runs",
        "test_max_turns_counts_the_steps_of_the_journal",
        "test_mcp_tools_work_at_every_trust_level",
        "test_nothing_is_left_out_where_that_does_not_help",
        "test_the_words_of_a_person_stay",
        "test_waiting_for_a_slow_model_after_tools_is_announced",
    }
)
"""Of the suite, what the shared turn does without asking the engine, in many variants, or what its own tests show. It
holds for this engine (run it with an empty set); but each of its turns starts a program, and the whole takes minutes.
"""
LONG_WITH_CLAUDE = frozenset(
    {
        "test_a_canceled_task_is_canceled",
        "test_a_result_is_committed_before_the_others_of_its_step_end",
        "test_a_result_names_the_tools_that_the_model_was_offered",
        "test_a_session_that_cannot_be_resumed_becomes_a_new_conversation",
        "test_a_stop_verdict_ends_the_turn_at_the_boundary",
        "test_a_tool_is_called_and_its_result_is_sent_back",
        "test_a_tool_that_the_provider_refuses_is_left_out_and_the_turn_goes_on",
        "test_only_the_result_that_is_refused_is_left_out",
        "test_an_abort_during_a_commit_lets_the_commit_end",
        "test_an_abort_from_within_a_callback_stops_at_that_token",
        "test_callbacks_come_in_order",
        "test_calls_of_one_step_run_concurrently",
        "test_steering_that_was_committed_is_not_lost_by_a_crash",
        "test_usage_adds_up_over_steps",
    }
)
"""Of the others, what `make test-long` runs: here they show the same path through this engine at more points."""


class ClaudeStage(WireStage):
    """The claude_agent engine."""

    begins_in_s = 5.0
    at_once = 2
    model = "claude-sonnet-4-5"

    def __init__(self, server: ModelServer) -> None:
        engine = ClaudeAgentEngine(
            environment={"PATH": os.environ["PATH"]}, api_key="k", base_url=server.url, max_retries=0
        )
        super().__init__(server, engine)

    def tool_name(self, name: str) -> str:
        return f"mcp__nova__{name}"
