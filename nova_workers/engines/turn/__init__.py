"""The turn that engines share: the vendor-neutral implementation of the run protocol inside an engine."""

from nova_workers.engines.turn.interruption import Interruption, TurnStopped
from nova_workers.engines.turn.loop import Turn
from nova_workers.engines.turn.seam import (
    Ask,
    BlockPlace,
    ContentRefused,
    Draft,
    Ending,
    Responder,
    Response,
    ToolOutcome,
    ToolRefused,
    Tools,
)
from nova_workers.engines.turn.spans import model_span, tool_span
from nova_workers.engines.turn.tally import Budget

__all__ = [
    "Ask",
    "BlockPlace",
    "Budget",
    "ContentRefused",
    "Draft",
    "Ending",
    "Interruption",
    "Responder",
    "Response",
    "ToolOutcome",
    "ToolRefused",
    "Tools",
    "Turn",
    "TurnStopped",
    "model_span",
    "tool_span",
]
