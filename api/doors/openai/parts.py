"""What a response and a completion have in common: each is a part of a run, and its id names the run.

It goes from a step to the end of the run, or to the step in which the run asks its caller or a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

from nova_workers.base.errors import missing
from nova_workers.contracts.http.wire import RunView, UsageView
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.threads.sql.items import RunFacts

from ..items import Item, QuestionItem, ToolCallItem

ULID_CHARS: Final = 26


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
        if not text.startswith(cls.prefix) or not ulid.isalnum() or not (digits.isascii() and digits.isdigit()):
            raise missing(cls.kind, text[:80])
        return cls(f"run_{ulid}", int(digits[:9]))

    def __str__(self) -> str:
        ulid = self.run_id.removeprefix("run_")
        return f"{self.prefix}{ulid}_{self.first_step}" if self.first_step else f"{self.prefix}{ulid}"


def run_and_call_of(call_id: str) -> tuple[str, str] | None:
    """Return the run and the call that a call's id names; None for a call of another service."""
    ulid, _, call = call_id.removeprefix("call_").partition("_")
    is_ours = call_id.startswith("call_") and len(ulid) == ULID_CHARS and ulid.isalnum() and call
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


def usage_of_part(run: RunView, facts: RunFacts | None, first_step: int, last_step: int | None) -> PartUsage | None:
    """Return the tokens of a run up to the end of a part, without those before it; None before they are known.

    Args:
        run: Has the tokens of the whole.
        facts: Has those of each step. Not needed for a part that is the whole run.
        first_step: The step with which the part begins.
        last_step: The step that ends it by asking; None if it goes to the end of the run.
    """
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
