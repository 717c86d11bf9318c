"""The models of Anthropic: what their ids say, and those that the installed SDK lists.

The SDK is not imported, which takes 1 s of CPU and 45 MB.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_ID = re.compile(r"^claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?:-(?P<date>\d{8}))?$")

_NO_TEMPERATURE_SINCE = (4, 7)


@dataclass(frozen=True, slots=True)
class ModelName:
    """The parts of an id such as ``claude-opus-4-5-20251101``. `date` is None for an id that tracks the newest."""

    family: str
    version: tuple[int, int]
    date: str | None = None


def parse_model(model_id: str) -> ModelName | None:
    """Return the parts of the id, or None if it has another form."""
    match = _ID.match(model_id)
    if match is None:
        return None
    return ModelName(match["family"], (int(match["major"]), int(match["minor"] or 0)), match["date"])


def takes_temperature(model_id: str) -> bool:
    """Return whether the provider takes a temperature for a model. The newest refuse requests with one."""
    name = parse_model(model_id)
    return name is None or name.version < _NO_TEMPERATURE_SINCE


@cache
def sdk_model_ids() -> tuple[str, ...] | None:
    """Return the ids, read from the source of the SDK; None where it is not installed."""
    spec = find_spec("anthropic")
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse((Path(spec.origin).parent / "types" / "model.py").read_text(encoding="utf-8"))
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return tuple(value for value in constants if isinstance(value, str) and value.startswith("claude-"))
