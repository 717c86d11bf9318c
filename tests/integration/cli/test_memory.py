"""`nova memories` and `nova search` on a real fleet."""

import uuid
from typing import Any

import pytest

from tests.support.processes.command_line import Nova, wait_for

pytestmark = pytest.mark.fleet


def test_a_memory_is_saved_listed_and_deleted(nova: Nova) -> None:
    fact = f"Likes tea {uuid.uuid4().hex}"
    made = nova.good("memories", "create", fact, "--json").json
    assert (made["content"], made["saved_by"]) == (fact, "person")
    listed = nova.good("memories", "list", "--contains", fact[-12:])
    assert made["id"] in listed.out
    assert fact in listed.out
    assert nova.good("memories", "delete", made["id"]).out == f"deleted {made['id']}\n"
    assert nova.good("memories", "list", "--contains", fact[-12:], "--json").json["items"] == []
    gone = nova("memories", "delete", made["id"])
    assert gone.code == 1
    assert f"There is no memory {made['id']!r}." in gone.err


def test_messages_are_found_by_search(nova: Nova) -> None:
    word = f"heron{uuid.uuid4().hex[:8]}"
    thread_id = nova.good("send", f"We saw the {word} today", "--json").lines[0]["run"]["thread_id"]

    def look() -> Any:
        found = nova.good("search", "where", "was", "the", word, "--agent", "nova", "--json").json["items"]
        return found if any(word in hit["excerpt"] for hit in found) else []

    # Its effect comes after the run; until then others are found, by the other words.
    hits = wait_for(look, what="the message to be found")
    assert {hit["thread_id"] for hit in hits if word in hit["excerpt"]} == {thread_id}
    shown = nova.good("search", word)
    assert f"We saw the {word} today" in shown.out
    assert thread_id in shown.out
    assert nova.good("search", word, "--until", "2020-01-01").out == ""


def test_an_invalid_search_is_refused(nova: Nova) -> None:
    backwards = nova("search", "x", "--since", "2026-02-01", "--until", "2026-01-01")
    assert (backwards.code, "until is" in backwards.err) == (1, True)
    odd = nova("search", "x", "--since", "soon")
    assert (odd.code, "--since" in odd.err) == (2, True)
