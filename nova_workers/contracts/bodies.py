"""What all request and response bodies of the HTTP contract have in common.

Inputs forbid unknown fields, so that a typing error is a 422 and not a setting that silently did nothing.
Times are RFC 3339 in UTC. Lists come in pages with an opaque `next_cursor`.
"""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Body", "Page", "Problem", "View"]

T = TypeVar("T")


class Body(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(BaseModel):
    """What the API answers. A client passes over fields that a newer API has."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Problem(View):
    """An error, as RFC 9457 has it (``application/problem+json``).

    `code` is stable for programs; `detail` quotes the value and says what to do; `errors` names fields.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    errors: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    context: dict[str, Any] = Field(default_factory=dict[str, Any])


class Page(View, Generic[T]):
    """One page of a list, newest first unless said otherwise. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None
