"""Options of a turn that a model does not take: requests go without them, and the turn's listener gets a note."""

from collections.abc import Container, Iterable

from nova_workers.engines.turn import Draft

__all__ = ["LeftOutOptions", "RefusedOptions", "note_of"]

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


class LeftOutOptions:
    """What the requests of one turn go without."""

    def __init__(self, refused: RefusedOptions, *, has_temperature: bool) -> None:
        """Take what models have refused in this process, and whether the turn asks for a temperature."""
        self._refused = refused
        self._has_temperature = has_temperature
        self._noted: set[tuple[str, str]] = set()

    def add(self, model: str, option: str) -> None:
        """Remember that a model refuses an option."""
        self._refused.add(model, option)

    def of(self, model: str, request: Container[str], draft: Draft) -> list[str]:
        """Return the options of a request that its model refuses. Each that it goes without is noted once.

        Args:
            model: The model.
            request: The names of all options in it. A temperature may be missing already.
            draft: Gets the note.
        """
        refused = [option for option in self._refused.of(model) if option in request]
        absent = ("temperature",) if self._has_temperature and "temperature" not in request else ()
        for option in (*refused, *absent):
            if (model, option) not in self._noted:
                self._noted.add((model, option))
                draft.leave_out(option, note_of(option, f"The model {model!r}"))
        return refused


def note_of(option: str, of: str) -> str:
    """Return the note that a model or an engine takes no such option."""
    return f"{of} takes no {option}; the turn goes on without it."
