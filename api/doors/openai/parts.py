"""What a response and a completion have in common: each is a part of a run, and its id names the run.

It goes from a step to the end of the run, or to the step in which the run asks its caller or a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput, missing
from nova_workers.contracts.http.wire import RunView, UsageView
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import AFFIRMATIVE, AskApproval, RunAnswer
from nova_workers.domain.threads.sql.items import RunFacts

from ..items import Item, QuestionItem, ToolCallItem

GOES_ON: Final = "Continue with these results."
"""The message where a client sends results for which no run waits."""
_ULID: Final = re.compile(r"[0-9A-Za-z]{26}")


@dataclass(frozen=True, slots=True)
class PartId:
    """The id of a part of a run.

    Attributes:
        prefix: With which the ids of its kind begin.
        kind: What it is called where there is none.
        first_step: The step with which it begins.
    """

    prefix: ClassVar[str]
    kind: ClassVar[str]
    run_id: str
    first_step: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id.

        Raises:
            NotFound: It is none that such a part can have.
        """
        ulid, _, step = text.removeprefix(cls.prefix).partition("_")
        digits = step or "0"
        if not text.startswith(cls.prefix) or not is_ulid(ulid) or not (digits.isascii() and digits.isdigit()):
            raise missing(cls.kind, text[:80])
        return cls(f"run_{ulid}", int(digits[:9]))

    @classmethod
    def made(cls, name: str) -> Self:
        """Return the part that an earlier request made, by a run's id or by its own."""
        return cls(name) if name.startswith("run_") else cls.parse(name)

    def __str__(self) -> str:
        ulid = self.run_id.removeprefix("run_")
        return f"{self.prefix}{ulid}_{self.first_step}" if self.first_step else f"{self.prefix}{ulid}"


def is_ulid(text: str) -> bool:
    """Return whether a text may be the end of an id of the fleet."""
    return _ULID.fullmatch(text) is not None


def run_and_call_of(call_id: str) -> tuple[str, str] | None:
    """Return the run and the call that a call's id names; None for a call of another service."""
    ulid, _, call = call_id.removeprefix("call_").partition("_")
    is_ours = call_id.startswith("call_") and is_ulid(ulid) and call
    return (f"run_{ulid}", call) if is_ours else None


class PartUsage(NamedTuple):
    """The tokens of a part of a run."""

    read: int
    cached: int
    cache_written: int
    written: int
    reasoning: int


def asks(item: Item) -> bool:
    """Return whether a part ends with an item: the client or a person is to do something."""
    return isinstance(item, QuestionItem) or (isinstance(item, ToolCallItem) and item.for_caller)


def cut(items: Iterable[Item], first_step: int) -> tuple[list[Item], int | None]:
    """Return the items of a part, and its last step if it ends by asking its caller or a person.

    What the step before it asked beside, and is open still, is asked again: the part has that alone.
    """
    found = list(items)
    again = [item for item in found if is_asked_again(item, first_step)]
    if again:
        return again, first_step - 1
    own = [item for item in found if item.step >= first_step]
    last = min((item.step for item in own if asks(item)), default=None)
    return (own if last is None else [item for item in own if item.step <= last]), last


def is_asked_again(item: Item, first_step: int) -> bool:
    """Return whether the step before a part asked something that is open still, beside what was answered."""
    return isinstance(item, QuestionItem) and item.is_open and item.step == first_step - 1


def answers_to(questions: Sequence[QuestionItem], text: str, field: str) -> list[RunAnswer]:
    """Return the answers to all that a part asked of a person, from the message that follows it.

    Each is answered by its own line of a message with as many lines, else by the whole. Permission is given by a yes;
    all else is why it is not.

    Raises:
        InvalidInput: It is too long; names the field.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    texts = lines if len(lines) == len(questions) else [text] * len(questions)
    return [_answer_to(question, text, field) for question, text in zip(questions, texts, strict=True)]


def _answer_to(question: QuestionItem, text: str, field: str) -> RunAnswer:
    if not isinstance(question.request, AskApproval):
        return answer(field, wait_id=question.id, text=text)
    if text.casefold().rstrip(".!") in AFFIRMATIVE:
        return answer(field, wait_id=question.id, approve=True)
    return answer(field, wait_id=question.id, approve=False, text=text)


def answer(field: str, **fields: Any) -> RunAnswer:
    """Return an answer.

    Raises:
        InvalidInput: It is too long, or of a form that no answer has; names the field.
    """
    try:
        return RunAnswer(**fields)
    except ValidationError as error:
        raise InvalidInput(f"{field}: {error.errors()[0]['msg']}.", field=field) from error


def usage_of_part(run: RunView, facts: RunFacts | None, first_step: int, last_step: int | None) -> PartUsage | None:
    """Return the tokens of a run up to the end of a part, without those before it; None before they are known.

    Args:
        run: Has the tokens of the whole.
        facts: Has those of each step. Not needed for a part that is the whole run.
        first_step: The step with which the part begins.
        last_step: The step that ends it by asking; None if it goes to the end of the run.
    """
    if last_step is not None and last_step < first_step:
        # It asks again what was asked before.
        return PartUsage(0, 0, 0, 0, 0)
    before = TokenUsage()
    upto: TokenUsage | UsageView | None = run.usage
    if facts is not None:
        before = facts.used_at.get(first_step - 1, before)
        if last_step is not None:
            # Those of a step that waits are the turn's so far.
            upto = facts.used_at.get(last_step) or facts.used
    if upto is None:
        return None
    cached = upto.cache_read_tokens - before.cache_read_tokens
    cache_written = upto.cache_write_tokens - before.cache_write_tokens
    return PartUsage(
        read=upto.input_tokens - before.input_tokens + cached + cache_written,
        cached=cached,
        cache_written=cache_written,
        written=upto.output_tokens - before.output_tokens,
        reasoning=upto.reasoning_tokens - before.reasoning_tokens,
    )
