"""Bars of characters: readable without colour."""

BAR_CELLS = 20


def bar(part: float, whole: float, cells: int = BAR_CELLS) -> str:
    """Return a bar that is full at `part` = `whole`. Any part above 0 is visible."""
    if whole <= 0 or part <= 0:
        return "·" * cells
    filled = min(cells, max(1, round(cells * part / whole)))
    return "█" * filled + "·" * (cells - filled)
