"""What a call of a tool came to, as JSON: a value, or one of the library's exceptions that steer its agent."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import ToolReturn
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import ToolReturnContent

_values: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
_returns: TypeAdapter[Any] = TypeAdapter(ToolReturn)


async def outcome_of(call: Awaitable[Any]) -> dict[str, Any]:
    """Return the outcome of a call. Any other exception of it propagates."""
    try:
        value = await call
    except (ModelRetry, ToolRetryError) as error:
        return {"retry": str(error)}
    except (ToolFailed, ToolFailedError) as error:
        return {"failed": str(error)}
    except ApprovalRequired as error:
        return {"approval": error.metadata}
    except CallDeferred as error:
        return {"deferred": error.metadata, "kind": error.kind}
    if isinstance(value, ToolReturn):
        return {"return": _returns.dump_python(value, mode="json")}
    return {"value": _values.dump_python(value, mode="json")}


def result_in(outcome: dict[str, Any]) -> Any:
    """Return the value of such a call, or raise its exception."""
    match outcome:
        case {"value": value}:
            return _values.validate_python(value)
        case {"return": value}:
            return _returns.validate_python(value)
        case {"retry": message}:
            raise ModelRetry(message)
        case {"failed": message}:
            raise ToolFailed(message)
        case {"approval": metadata}:
            raise ApprovalRequired(metadata)
        case {"deferred": metadata, "kind": kind}:
            raise CallDeferred(metadata, kind=kind)
        case _:
            raise ValueError(
                f"The journal has an outcome of a tool with {sorted(outcome)}, which a later release wrote."
            )
