"""Options of a turn that a model does not take: requests go without them, and the turn's listener gets a note."""

from collections.abc import Iterable

__all__ = ["RefusedOptions", "note_of"]

_MOST = 1_000
"""Models and options that a process remembers: an operator's gateway may have any number of models."""


class RefusedOptions:
    """What models have refused in this process, so that each costs one refused request and not one a turn."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def of(self, model: str) -> Iterable[str]:
        """Return the options that a model refused."""
        return self._known.get(model, frozenset())

    def add(self, model: str, option: str) -> None:
        """Remember that a model refuses an option."""
        if model in self._known or len(self._known) < _MOST:
            self._known[model] = self._known.get(model, frozenset()) | {option}


def note_of(option: str, of: str) -> str:
    """Return the note that a model or an engine takes no such option."""
    return f"{of} takes no {option}; the turn goes on without it."
