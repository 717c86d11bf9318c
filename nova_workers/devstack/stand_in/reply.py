"""Replies of the local stand-in for a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the model wants to call."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: text, and at most one tool call."""

    text: str
    tool: ToolUse | None = None
