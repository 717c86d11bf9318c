"""Bars of characters: they need no colour, and say the same where there is none."""

__all__ = ["BAR_CELLS", "bar"]

BAR_CELLS = 20


def bar(part: float, whole: float, cells: int = BAR_CELLS) -> str:
    """Return a bar that is full where `part` reaches `whole`. Anything above nothing shows."""
    if whole <= 0 or part <= 0:
        return "·" * cells
    filled = min(cells, max(1, round(cells * part / whole)))
    return "█" * filled + "·" * (cells - filled)
