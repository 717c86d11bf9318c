"""The contract suite on the engines over vendors' programs: the real programs, over HTTP to a local model server."""

from __future__ import annotations

import os

from nova_workers.engines.gemini import Gemini
from nova_workers.engines.programs.engine import ProgramEngine
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.vendor import ProgramSettings
from tests.contract.engines.stage import WireStage
from tests.support.servers.installed_programs import CODEX, program_path
from tests.support.servers.model_server import ModelServer

_OF_CODEX = frozenset(
    {
        "test_a_canceled_task_is_canceled",
        "test_a_failing_tool_is_an_error_for_the_model_and_the_turn_continues",
        "test_a_refused_call_does_not_run_and_the_model_gets_the_reason",
        "test_a_result_names_the_tools_that_the_model_was_offered",
        "test_a_resumed_turn_keeps_counting_steps_and_calls",
        "test_a_stop_verdict_ends_the_turn_at_the_boundary",
        "test_a_tool_is_called_and_its_result_is_sent_back",
        "test_a_tool_that_the_provider_refuses_is_left_out_and_the_turn_goes_on",
        "test_odd_schemas_are_sent_in_a_form_that_the_provider_takes",
        "test_a_tool_that_takes_too_long_is_stopped_and_the_model_gets_an_error",
        "test_a_turn_that_waits_too_long_for_its_model_ends_as_timeout",
        "test_an_abort_during_a_commit_lets_the_commit_end",
        "test_callbacks_come_in_order",
        "test_calls_of_one_step_run_concurrently",
        "test_max_turns_bounds_model_calls_and_leaves_a_valid_transcript",
        "test_only_the_result_that_is_refused_is_left_out",
        "test_steering_joins_at_the_step_boundary",
        "test_usage_adds_up_over_steps",
    }
)
"""Of the suite, what the programs take part in. The rest is the shared turn alone, or needs an answer in pieces, or the
conversation as the provider's messages; and each turn starts a program."""
_OF_GEMINI = frozenset(
    {
        "test_a_tool_that_the_provider_refuses_is_left_out_and_the_turn_goes_on",
        "test_a_refused_call_does_not_run_and_the_model_gets_the_reason",
        "test_calls_of_one_step_run_concurrently",
        "test_max_turns_bounds_model_calls_and_leaves_a_valid_transcript",
        "test_only_the_result_that_is_refused_is_left_out",
        "test_steering_joins_at_the_step_boundary",
    }
)
"""Fewer, since this program takes a second to start."""
OF_PROGRAMS = {"codex": _OF_CODEX, "gemini": _OF_GEMINI}
"""By the name of the stage: the tests that it takes part in."""
LONG_WITH_PROGRAMS = {
    "codex": frozenset(
        {
            "test_a_result_names_the_tools_that_the_model_was_offered",
            "test_a_resumed_turn_keeps_counting_steps_and_calls",
            "test_a_stop_verdict_ends_the_turn_at_the_boundary",
            "test_a_tool_is_called_and_its_result_is_sent_back",
            "test_an_abort_during_a_commit_lets_the_commit_end",
            "test_usage_adds_up_over_steps",
        }
    ),
    "gemini": frozenset(
        {
            "test_a_refused_call_does_not_run_and_the_model_gets_the_reason",
            "test_a_tool_that_the_provider_refuses_is_left_out_and_the_turn_goes_on",
            "test_max_turns_bounds_model_calls_and_leaves_a_valid_transcript",
            "test_only_the_result_that_is_refused_is_left_out",
            "test_steering_joins_at_the_step_boundary",
        }
    ),
}
"""Of these, what `make test-long` runs: the same path through an engine at more points."""


def codex_engine(url: str, **given: object) -> ProgramEngine:
    """Return the engine on a model server. `given` replaces fields of its settings."""
    environment = {"PATH": os.environ["PATH"]}
    fields: dict[str, object] = {"program": program_path("codex"), "api_key": "k-secret", "base_url": f"{url}/v1"}
    settings = ProgramSettings(environment, **{**fields, **given})  # pyright: ignore[reportArgumentType] - settings by name
    return ProgramEngine(CODEX, settings, ProgramModels("codex", price_list="openai"), max_retries=0)


def gemini_engine(url: str) -> ProgramEngine:
    """Return the engine on a model server."""
    settings = ProgramSettings({"PATH": os.environ["PATH"]}, program_path("gemini"), "k-secret", url)
    return ProgramEngine(Gemini(), settings, ProgramModels("gemini", price_list="google"), max_retries=0)


class CodexStage(WireStage):
    """The codex engine."""

    begins_in_s = 3.0
    at_once = 2
    model = "gpt-5"

    def __init__(self, server: ModelServer) -> None:
        super().__init__(server, codex_engine(server.url))
        self.overloaded = {"code": "server_is_overloaded", "message": "Overloaded", "sequence_number": 9}

    def tool_name(self, name: str) -> str:
        return f"mcp__nova/{name}"


class GeminiStage(WireStage):
    """The gemini engine."""

    begins_in_s = 5.0
    at_once = 2
    model = "gemini-2.5-flash"

    def __init__(self, server: ModelServer) -> None:
        super().__init__(server, gemini_engine(server.url))

    def tool_name(self, name: str) -> str:
        return f"mcp_nova_{name}"
