"""The worked translations of the pages "Coming from …" do what they say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.agents import as_agent
from nova_workers.sdk.durable import Context, Message
from tests.support.data.documents import ROOT, blocks
from tests.support.harness.paper_journal import Died, PaperJournal


def _agents(page: str) -> dict[str, Callable[[Context, Message], Awaitable[Any]]]:
    (source,) = (
        block.text for block in blocks("python") if block.page == ROOT / "docs" / page and "@agent" in block.text
    )
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(source, names)
    return {found.name: found.function for thing in names.values() if (found := as_agent(thing)) is not None}


@pytest.mark.parametrize(
    ("page", "name", "answer", "said"),
    [
        ("from-langgraph.md", "booking", "Friday", "Booked for Friday."),
        ("from-pydantic-ai.md", "support", "approve", '{"refund":"a is refunded."}'),
        ("from-temporal.md", "refund", "yes", "500 cents were paid for O-1."),
        ("from-temporal.md", "refund", "no", "It was not refunded."),
    ],
)
async def test_a_worked_translation_answers_and_goes_on_after_any_death(
    page: str, name: str, answer: str, said: str
) -> None:
    function = _agents(page)[name]
    ended, most = None, 0
    while ended is None:
        journal = PaperJournal((), most=most, answer=answer)
        try:
            ended = await function(Context(journal, CallContext()), Message.of("O-1"))
        except Died:
            resumed = PaperJournal(journal.entries, answer=answer)
            assert await function(Context(resumed, CallContext()), Message.of("O-1")) == said
        most += 1
    assert ended == said
    assert most > 2
