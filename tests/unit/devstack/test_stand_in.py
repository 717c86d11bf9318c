"""What the local stand-in for a model answers."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.devstack.stand_in.rules import ToolUse, reply_to
from nova_workers.domain.prompts.rules import work_words
from nova_workers.domain.prompts.rules.orchestration import role_words

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
def test_it_saves_what_a_message_asks_to_remember(message: str) -> None:
    assert reply_to(said(message)).tool == ToolUse("memory_save", {"content": "Our release day is Thursday."})


def test_it_searches_memories_for_a_personal_question() -> None:
    assert reply_to(said("When is our release day?")).tool == ToolUse("memory_list", {})


def test_without_tools_it_answers_without_calls() -> None:
    assert reply_to(said("Remember that it rains.", tools=[])).tool is None


def test_it_answers_with_the_memory_that_fits_the_question_best() -> None:
    listed = "mem_1 (2026-11-21): Our office is in Ghent.\nmem_2 (2026-11-20): Our release day is Thursday."
    assert reply_to(after("When is our release day?", listed)).text == "From memory: Our release day is Thursday."


def test_it_does_not_invent_a_memory() -> None:
    listed = "mem_1 (2026-11-21): Our office is in Ghent."
    assert "Nothing about that" in reply_to(after("What is my favourite colour?", listed)).text
    assert "Nothing about that" in reply_to(after("What is my favourite colour?", "Nothing is remembered.")).text


def test_it_repeats_the_error_of_a_tool() -> None:
    assert "no such memory" in reply_to(after("Remember X.", "no such memory", is_error=True)).text


def test_it_names_a_conversation() -> None:
    request = said(
        "<conversation>\nUser: How do I bake bread at home?\n\nAssistant: …\n</conversation>\n\nGive the title.",
        tools=[],
        system="You name conversations. Answer with a title of 3 to 6 words.",
    )
    assert reply_to(request).text == "How do I bake bread"


@pytest.mark.parametrize("request_", [{}, {"messages": []}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_an_odd_request_gets_an_answer(request_: dict[str, Any]) -> None:
    assert reply_to(request_).text


_PLAN = "<Task>\nTask 3: Tidy up\nSteps (0 of 2 done):\n- [ ] Sweep [tst_01A]\n  Well\n- [ ] Mop [tst_01B]\n</Task>"


def _work(*calls: ToolUse, says: str = "", is_error: bool = False) -> dict[str, Any]:
    """Return the request after these calls, the last of which reports that."""
    request = after(work_words(3), says, is_error=is_error) if calls else said(work_words(3))
    request["system"] = [{"type": "text", "text": f"You are Nova.\n{_PLAN}"}]
    for call in calls:
        block = {"type": "tool_use", "id": "t", "name": call.name, "input": dict(call.arguments)}
        request["messages"].insert(1, {"role": "assistant", "content": [block]})
    return request


def test_it_works_through_a_task_step_by_step_and_ends_it() -> None:
    one, two = (
        ToolUse("task_update_step", {"task_id": 3, "step_id": step_id, "done": True})
        for step_id in ("tst_01A", "tst_01B")
    )
    end = ToolUse("task_complete", {"task_id": 3, "outcome": "Tidy up: every step is done."})
    assert reply_to(_work()).tool == one
    assert reply_to(_work(one, says="1 of 2")).tool == two
    assert reply_to(_work(one, two, says="2 of 2")).tool == end
    assert reply_to(_work(one, two, end, says="Task 3 is done.")).tool is None


def test_work_that_fails_ends_with_what_the_tool_said() -> None:
    one = ToolUse("task_update_step", {"task_id": 3, "step_id": "tst_01A", "done": True})
    assert reply_to(_work(one, says="There is no task 3.", is_error=True)).text.endswith("There is no task 3.")


def test_a_master_gives_its_parts_to_workers_and_sums_up_what_they_report() -> None:
    master, task = role_words("MASTER"), "Do it: (1) write one line; (2) check it."
    begun = reply_to({"system": master, "messages": [{"role": "user", "content": task}]})
    assert begun.tool is not None
    assert begun.tool.arguments["children"] == [
        {"prompt": "Write one line", "name": "Line"},
        {"prompt": "Check it", "name": "It"},
    ]
    report = "oag_1 (worker) completed its task:\nWrite one line: done.\n\noag_2 (worker) completed its task:\nFine."
    result = {"type": "tool_result", "tool_use_id": "t", "content": report}
    messages = [{"role": "user", "content": task}, {"role": "user", "content": [result]}]
    ended = reply_to({"system": master, "messages": messages})
    assert ended.tool is not None
    assert ended.tool.arguments == {"summary": "Both parts: Write one line: done; Fine."}


def test_a_worker_completes_its_task() -> None:
    reply = reply_to({"system": role_words("WORKER"), "messages": [{"role": "user", "content": "Check it"}]})
    assert reply.tool is not None
    assert (reply.tool.name, reply.tool.arguments) == ("task_complete", {"summary": "Check it: done."})
