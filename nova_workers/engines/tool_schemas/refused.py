"""Which tool a provider blames for refusing a request."""

import re
from collections.abc import Sequence

_AT_INDEX = (
    # Gemini's, which is within a list of tools.
    re.compile(r"function_?declarations\[(\d+)\]", re.IGNORECASE),
    re.compile(r"\btools\.(\d+)\b"),
    re.compile(r"\btools\[(\d+)\]"),
)
_NAMED = re.compile(r"""(?:\b(?:tools?|functions?|schema)\b[^'"`]{0,40})['"`]([a-zA-Z0-9_-]{1,128})['"`]""")


def refused_tool(message: str, names: Sequence[str], *, numbered: bool = True) -> str | None:
    """Return the tool that an error message is about; None if it is about no single tool.

    Args:
        message: The provider's words.
        names: The names of the request's tools, in their order there.
        numbered: Whether that order is known, so that a number means a tool.
    """
    for pattern in _AT_INDEX if numbered else ():
        found = pattern.search(message)
        if found is not None:
            at = int(found[1])
            return names[at] if at < len(names) else None
    for word in _NAMED.findall(message):
        # A program puts the name of its server in front.
        found_names = [name for name in names if word == name or word.endswith(f"_{name}")]
        if found_names:
            return max(found_names, key=len)
    return None
