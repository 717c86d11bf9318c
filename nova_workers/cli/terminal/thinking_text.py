"""Extended thinking on a terminal: lines of its own with a bar in front, so that none looks like the answer."""

_BAR = "│ "


class ThinkingText:
    """Breaks pieces of text between words into lines.

    Args:
        width: Cells of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._room = max(20, width - len(_BAR) - 1)
        self._open = ""

    def feed(self, text: str) -> list[str]:
        """Take a piece; return the lines that it completes."""
        self._open += text
        done: list[str] = []
        while True:
            line, newline, rest = self._open.partition("\n")
            if len(line) > self._room:
                at = line.rfind(" ", 0, self._room + 1)
                at = self._room if at <= 0 else at
                done.append(_BAR + line[:at])
                self._open = line[at:].lstrip(" ") + newline + rest
            elif newline:
                done.append(_BAR + line)
                self._open = rest
            else:
                return done

    def close(self) -> list[str]:
        """Return the open line."""
        line, self._open = self._open, ""
        return [_BAR + line] if line.strip() else []
