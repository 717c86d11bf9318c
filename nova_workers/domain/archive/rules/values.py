"""Validation of values in an archive's rows where the code relies on more than Postgres checks. Pure.

Values that this fleet wrote were checked then, and readers do not check again.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Strict, TypeAdapter, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import problem_of
from nova_workers.base.vocabulary import EndedWaitStatus
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.content import ContentBlock, JsonObject, Role
from nova_workers.contracts.engine import CompactionTrigger, Limit
from nova_workers.contracts.event_context import EventContext
from nova_workers.contracts.http.feedback import Author, Comment, FeedbackName, Label, Score
from nova_workers.contracts.http.triggers import SkipReason
from nova_workers.contracts.waits import wait_adapter
from nova_workers.domain.archive.sql.tables import KeptTable

MAX_COUNT: Final = 2**31 - 2
"""For a 32-bit column, with headroom to count further."""
_MAX_BIG_COUNT: Final = 10**12
"""For a 64-bit column, with headroom for sums over millions of rows."""
_MAX_PRIORITY: Final = 100


def _is_block(block: ContentBlock) -> ContentBlock:
    kind = block.get("type")
    if not isinstance(kind, str):
        raise ValueError("a content block has a type")
    if kind == "text" and not isinstance(block.get("text"), str):
        raise ValueError("a text block has a text")
    return block


_Blocks = list[Annotated[ContentBlock, AfterValidator(_is_block)]]
_BLOCKS: Final = TypeAdapter(_Blocks)
_OBJECT: Final = TypeAdapter(JsonObject)
_AGENT: Final = TypeAdapter(AgentId)
_Score = Annotated[Score, Strict()]

_FORMS: Final[Mapping[str, Mapping[str, TypeAdapter[Any]]]] = {
    "memories": {"agent_id": _AGENT},
    "tasks": {"owner_agent_id": _AGENT},
    "task_changes": {"details": _OBJECT},
    "trigger_firings": {"skip_reason": TypeAdapter(SkipReason | None)},
    "notes": {"agent_id": _AGENT},
    "sent_files": {"agent_id": _AGENT},
    "deliveries": {"agent_id": TypeAdapter(AgentId | None), "payload": _OBJECT},
    "threads": {"agent_id": _AGENT, "meta": _OBJECT},
    "runs": {"agent_id": _AGENT, "content": _BLOCKS, "meta": _OBJECT, "limit_reached": TypeAdapter(Limit | None)},
    "turns": {
        "agent_id": _AGENT,
        "tools_available": TypeAdapter(list[str] | None),
        "permissions_granted": TypeAdapter(JsonObject | None),
        "permissions_used": TypeAdapter(JsonObject | None),
    },
    "messages": {"role": TypeAdapter(Role), "content": _BLOCKS, "context": TypeAdapter(EventContext | None)},
    "tool_calls": {"params": _OBJECT, "result": TypeAdapter(_Blocks | None)},
    "compactions": {"trigger": TypeAdapter(CompactionTrigger)},
    "usage": {"agent_id": _AGENT},
    "feedback": {
        "agent_id": _AGENT,
        "name": TypeAdapter(FeedbackName),
        "score": TypeAdapter(_Score | None),
        "label": TypeAdapter(Label | None),
        "comment": TypeAdapter(Comment | None),
        "author": TypeAdapter(Author),
    },
    # A run that has ended must not have a wait: the query for due waits reads those of all tenants.
    "run_waits": {
        "status": TypeAdapter(EndedWaitStatus),
        "request": wait_adapter,
        "answer": TypeAdapter(JsonObject | None),
    },
}
"""By table, columns that readers parse. Agents, skills and triggers are checked whole, in `rows`."""


def check_values(table: KeptTable, row: JsonObject) -> None:
    """Check the values of a row.

    Raises:
        InvalidInput: One does not fit its column; the message names table and column.
    """
    for column, form in _FORMS.get(table.name, {}).items():
        try:
            form.validate_python(row.get(column))
        except ValidationError as error:
            raise unreadable(f"{table.name}.{column}", error) from error
    for column, bits in table.counts:
        least = -_MAX_PRIORITY if column == "priority" else 0
        most = _MAX_PRIORITY if column == "priority" else MAX_COUNT if bits == 32 else _MAX_BIG_COUNT
        value = row.get(column)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise wrong(f"{table.name}.{column}", f"{value!r:.80} is no whole number from {least} to {most}")
    for column in table.exact:
        if row.get(column) is not None and not _is_amount(row[column]):
            raise wrong(f"{table.name}.{column}", f"{row[column]!r:.80} is no amount")


def unreadable(where: str, error: ValidationError) -> InvalidInput:
    """Return the error for a value of the wrong form, with the first problem."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join([where, *(str(part) for part in first["loc"])])
    return wrong(field, f"{problem_of(first)}; got {first['input']!r:.80}")


def wrong(where: str, problem: str) -> InvalidInput:
    """Return the error for a row."""
    return InvalidInput(f"{where}: {problem}.", field=where)


def _is_amount(value: object) -> bool:
    """Return whether a value is a sum of money. Postgres also accepts ``NaN``, which is above any budget."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return False
    return amount.is_finite() and amount >= 0
