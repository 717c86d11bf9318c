"""What the providers take of a tool list."""

from dataclasses import dataclass
from typing import Final

PLAIN_KEYWORDS: Final = frozenset(
    {"type", "title", "description", "enum", "items", "minItems", "maxItems", "minimum", "maximum"}
    | {"anyOf", "properties", "required"}
)
"""Keywords that also a server takes which reads schemas into a form of its own, as Gemini does."""


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """What one provider takes. Names of tools and keys of properties have the same limits with all providers.

    Attributes:
        max_tools: Limit of tools in a request; None has none.
        max_schema_bytes: Limit of one schema, as JSON.
        max_total_bytes: Limit of all definitions together: what is longer leaves a model no room to work.
        max_depth: Limit of schemas within schemas.
        max_description_chars: Limit of a tool's description; None has none.
        plain: Whether the provider takes only `PLAIN_KEYWORDS`, and one type for each value.
    """

    max_tools: int | None = None
    max_schema_bytes: int = 64_000
    max_total_bytes: int = 400_000
    max_depth: int = 16
    max_description_chars: int | None = None
    plain: bool = False


ANTHROPIC: Final = ToolLimits()
OPENAI: Final = ToolLimits(max_tools=128, max_description_chars=1_024)
"""OpenAI's own server. The limit of descriptions is that of chat completions."""
OPENAI_COMPATIBLE: Final = ToolLimits()
"""Servers that speak a wire form of OpenAI's; they vary."""
GEMINI: Final = ToolLimits(max_tools=512, max_depth=8, plain=True)
