"""The input of the Responses API: what is said now, what was said before, and what a client's functions returned."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from api.doors.openai.bodies import CreateResponse, refuse_unkept, run_of
from api.doors.openai.inputs import Given, given_input, sealed_summary
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import text_block

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "done"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]}


def roles(given: Given) -> list[tuple[str, list[str]]]:
    """Return the history's roles, and the types of what they said."""
    return [
        (message.role, [str(block["type"]) for block in message.content if isinstance(block, dict)])
        for message in given.past()
    ]


def test_what_the_user_said_last_is_the_message_and_the_rest_is_history() -> None:
    given = given_input([{"role": "developer", "content": "Be brief."}, USER, CALL, OUTPUT, SAID, USER, USER])
    assert given.instructions == ["Be brief."]
    assert given.message == [text_block("hi"), text_block("hi")]
    assert roles(given) == [
        ("user", ["text"]),
        ("assistant", ["tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["text"]),
    ]


def test_outputs_at_the_end_are_results_and_can_become_history() -> None:
    given = given_input([USER, {"type": "reasoning", "summary": []}, SAID, CALL, OUTPUT])
    assert [result.tool_call_id for result in given.results] == ["c"]
    assert roles(given) == [("user", ["text"]), ("assistant", ["text", "tool_use"])]
    whole = given.without_results()
    assert roles(whole)[-1] == ("user", ["tool_result"])
    assert whole.text == "Continue with these results."


def test_a_history_that_begins_with_the_assistant_has_an_opening_of_the_user() -> None:
    assert [role for role, _ in roles(given_input([SAID, USER]))] == ["user", "assistant"]


def test_a_summary_stands_for_what_it_summarizes() -> None:
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": sealed_summary("They met in Köln.")}
    assert given_input([sealed, USER]).text.endswith("They met in Köln.\n\nhi")


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            {"type": "input_image", "image_url": "https://x.example/a.png"},
            {"type": "url", "url": "https://x.example/a.png"},
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
            {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        ),
        ({"type": "input_file", "file_id": "file_1"}, {"type": "file", "file_id": "file_1"}),
        (
            {"type": "input_file", "file_data": f"data:text/csv;base64,{base64.b64encode(b'a,b').decode()}"},
            {"type": "text", "media_type": "text/plain", "data": "a,b"},
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_images_and_files_are_blocks_of_the_fleet(part: dict[str, Any], block: dict[str, Any]) -> None:
    (found,) = given_input([{"role": "user", "content": [part]}]).message
    assert found["source"] == block


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([USER, CALL, USER], "input"),
        ([USER, OUTPUT, SAID, USER], "input"),
        ([USER, {**CALL, "arguments": "[]"}, OUTPUT], "input.1.arguments"),
        ([{"type": "compaction", "encrypted_content": "?"}], "input.0.encrypted_content"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "input.0.content.0"),
        ([{"role": "assistant", "content": [{"type": "image"}]}], "input.0.content.0"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}],
            "input.0.content.0.image_url",
        ),
    ],
)
def test_what_cannot_be_used_is_named(items: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        given_input(items)
    assert refused.value.fields["field"] == field


def test_options_are_those_of_the_run() -> None:
    body = CreateResponse.model_validate(
        {
            "model": "nova",
            "instructions": "One.",
            "input": [{"role": "system", "content": "Two."}, USER],
            "tools": [{"type": "function", "name": name} for name in ("a", "b")],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {}}}},
            "top_p": 0.5,
            "reasoning": {"effort": "high"},
        }
    )
    refuse_unkept(body)
    run = run_of(body, given_input(body.input), None, is_new=True)
    assert (run.instructions, [tool.name for tool in run.client_tools], run.tool_choice) == (
        "One.\n\nTwo.",
        ["b"],
        "required",
    )
    assert run.output_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize("field", ["max_tool_calls", "top_logprobs"])
def test_what_no_run_keeps_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match="not possible here"):
        refuse_unkept(CreateResponse.model_validate({field: 1}))
    refuse_unkept(CreateResponse.model_validate({field: 0}))
