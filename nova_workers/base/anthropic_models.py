"""The model ids that the installed Anthropic SDK lists, without importing it: that takes 1 s of CPU and 45 MB."""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def sdk_model_ids() -> tuple[str, ...] | None:
    """Return the ids, read from the source of the SDK; None where it is not installed."""
    spec = find_spec("anthropic")
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse((Path(spec.origin).parent / "types" / "model.py").read_text(encoding="utf-8"))
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return tuple(value for value in constants if isinstance(value, str) and value.startswith("claude-"))
