"""What the local stand-in for a model answers."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.devstack.stand_in import ToolUse, reply_to

TOOLS = [{"name": "memory_save"}, {"name": "memory_list"}, {"name": "memory_delete"}]


def said(text: str, *, tools: list[dict[str, Any]] | None = None, system: str = "You are Nova.") -> dict[str, Any]:
    return {
        "system": [{"type": "text", "text": system}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        "tools": TOOLS if tools is None else tools,
    }


def after(text: str, result: str, *, is_error: bool = False) -> dict[str, Any]:
    request = said(text)
    request["messages"] += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "memory_list", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": is_error,
                    "content": [{"type": "text", "text": result}],
                }
            ],
        },
    ]
    return request


@pytest.mark.parametrize(
    "message",
    [
        "Remember that our release day is Thursday.",
        "please remember: our release day is Thursday.",
        "Nova, note that our release day is Thursday.",
    ],
)
def test_it_saves_what_it_is_told_to_remember(message: str) -> None:
    assert reply_to(said(message)).tool == ToolUse("memory_save", {"content": "Our release day is Thursday."})


def test_it_looks_into_memory_for_a_personal_question() -> None:
    assert reply_to(said("When is our release day?")).tool == ToolUse("memory_list", {})


def test_without_tools_it_calls_none() -> None:
    assert reply_to(said("Remember that it rains.", tools=[])).tool is None


def test_it_answers_with_the_memory_that_fits_the_question_best() -> None:
    listed = "mem_1 (2026-11-21): Our office is in Ghent.\nmem_2 (2026-11-20): Our release day is Thursday."
    assert reply_to(after("When is our release day?", listed)).text == "From memory: Our release day is Thursday."


def test_it_does_not_invent_a_memory() -> None:
    listed = "mem_1 (2026-11-21): Our office is in Ghent."
    assert "Nothing about that" in reply_to(after("What is my favourite colour?", listed)).text
    assert "Nothing about that" in reply_to(after("What is my favourite colour?", "Nothing is remembered.")).text


def test_it_passes_a_tools_error_on() -> None:
    assert "no such memory" in reply_to(after("Remember X.", "no such memory", is_error=True)).text


def test_it_names_a_conversation() -> None:
    request = said(
        "<conversation>\nUser: How do I bake bread at home?\n\nAssistant: …\n</conversation>\n\nGive the title.",
        tools=[],
        system="You name conversations. Answer with a title of 3 to 6 words.",
    )
    assert reply_to(request).text == "How do I bake bread"


@pytest.mark.parametrize("request_", [{}, {"messages": []}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_an_odd_request_gets_an_answer_too(request_: dict[str, Any]) -> None:
    assert reply_to(request_).text
