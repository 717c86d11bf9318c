"""Markdown as Telegram shows it: messages of its HTML, each within its limit."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_MESSAGE_UNITS = 4_096
"""Telegram's bound of a message, in UTF-16 code units of the shown text."""
_PART_UNITS = 3_600
"""Bound of the Markdown of one message. Bullets and tables show more characters than they are written with."""
_MIN_CUT = 200
"""A part is not cut at a boundary before this many characters, so that no message is tiny."""

_MARKS_A_CHAR = 8
"""Characters of Markdown that are read for each of its first words' characters: links are long."""
_MAX_FENCE_UNITS = 100
"""A longer first line of a code block is not repeated in each of its pieces."""

_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_INLINE = {"strong": "b", "em": "i", "s": "s"}
_LINKS = ("http://", "https://", "tg://", "mailto:")


def units(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Telegram counts."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def split_markdown(text: str, limit: int = _PART_UNITS) -> list[str]:
    """Return a Markdown text in parts of bounded length, cut between its blocks where that is possible."""
    parts: list[str] = []
    for block in _blocks(text):
        pieces = [block] if units(block) <= limit else _cut_block(block, limit)
        for piece in pieces:
            if parts and units(parts[-1]) + units(piece) + 2 <= limit:
                parts[-1] += f"\n\n{piece}"
            else:
                parts.append(piece)
    return parts


def first_words(text: str, limit: int) -> str:
    """Return the beginning of a Markdown text in plain words, up to this many characters."""
    found = [
        part.content
        for token in _MARKDOWN.parse(text[: limit * _MARKS_A_CHAR])
        for part in (token.children or [token])
        if part.type in {"text", "code_inline", "fence", "code_block"}
    ]
    words = " ".join(" ".join(found).split())
    return words if len(words) <= limit else words[:limit].rsplit(" ", 1)[0]


def to_html(text: str) -> str:
    """Return a Markdown text in the HTML that Telegram accepts: its tags are balanced, all else is escaped."""
    return _Renderer().render(_MARKDOWN.parse(text))


def _blocks(text: str) -> list[str]:
    """Return the top-level blocks of a Markdown text, in its own words."""
    # The lines of the parser: `splitlines` has more, such as after U+2028.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    starts = sorted({token.map[0] for token in _MARKDOWN.parse(text) if token.level == 0 and token.map is not None})
    if not starts:
        return [text.strip()] if text.strip() else []
    bounds = [0, *starts[1:], len(lines)]
    blocks = ("\n".join(lines[start:end]).strip("\n") for start, end in pairwise(bounds))
    return [block for block in blocks if block.strip()]


def _cut_block(block: str, limit: int) -> list[str]:
    """Return a block in pieces. Each piece of a code block is a code block."""
    first, *rest = block.split("\n")
    fence = first.strip()
    if not fence.startswith(("```", "~~~")) or units(fence) > _MAX_FENCE_UNITS:
        return _cut(block, limit)
    mark = fence[: len(fence) - len(fence.lstrip(fence[0]))]
    if rest and rest[-1].strip() == mark:
        rest.pop()
    bound = limit - units(fence) - len(mark) - 2
    return [f"{fence}\n{piece}\n{mark}" for piece in _cut("\n".join(rest), bound, between=("\n",))]


def _cut(text: str, limit: int, between: Sequence[str] = ("\n", ". ", " ")) -> list[str]:
    """Return a text in pieces, cut at the last of the best boundaries within the limit."""
    pieces: list[str] = []
    while units(text) > limit:
        end = limit
        while units(text[:end]) > limit:
            end -= units(text[:end]) - limit
        for mark in between:
            found = text.rfind(mark, _MIN_CUT, end)
            if found > 0:
                end = found + len(mark)
                break
        pieces.append(text[:end].rstrip())
        text = text[end:].lstrip("\n")
    return [*pieces, text] if text.strip() else pieces


class _Renderer:
    """Writes tokens of Markdown as Telegram's HTML, which has neither headings, lists nor tables."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._lists: list[int | None] = []
        self._quotes = 0
        self._rows: list[list[str]] | None = None
        self._in_link: list[bool] = []

    def render(self, tokens: Sequence[Token]) -> str:
        for token in tokens:
            self._block(token)
        return "".join(self._out).strip()

    def _block(self, token: Token) -> None:
        if self._rows is not None:
            self._table(token, self._rows)
        elif token.type == "inline":
            self._inline(token.children or ())
        elif token.type in {"fence", "code_block"}:
            self._code(token)
        elif "list" in token.type:
            self._list(token)
        elif token.type.startswith("blockquote"):
            self._quote(is_open=token.type.endswith("open"))
        else:
            self._simple(token)

    def _simple(self, token: Token) -> None:
        match token.type:
            case "heading_open":
                self._out.append("<b>")
            case "heading_close":
                self._out.append("</b>\n\n")
            case "paragraph_close":
                self._out.append("\n" if self._lists else "\n\n")
            case "hr":
                self._out.append("———\n\n")
            case "table_open":
                self._rows = []
            case "html_block":
                self._out.append(escape(token.content))
            case _:
                pass

    def _list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                start = token.attrGet("start")
                self._lists.append(1 if start is None else int(start))
            case "list_item_open":
                self._item()
            case "list_item_close":
                pass
            case _:
                self._lists.pop()
                self._out.append("" if self._lists else "\n")

    def _quote(self, *, is_open: bool) -> None:
        # Telegram's do not nest.
        self._quotes += 1 if is_open else -1
        if is_open:
            self._out.append("<blockquote>" if self._quotes == 1 else "")
        elif not self._quotes:
            self._trim()
            self._out.append("</blockquote>\n\n")

    def _item(self) -> None:
        number = self._lists[-1]
        if number is not None:
            self._lists[-1] = number + 1
        mark = "• " if number is None else f"{number}. "
        self._out.append("  " * (len(self._lists) - 1) + mark)

    def _code(self, token: Token) -> None:
        language = token.info.split()[0] if token.info.split() else ""
        code = escape(token.content.rstrip("\n"))
        opened = f'<code class="language-{escape(language)}">' if language else ""
        self._out.append(f"<pre>{opened}{code}{'</code>' if language else ''}</pre>\n\n")

    def _inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            kind, _, side = token.type.rpartition("_")
            if kind in _INLINE:
                self._out.append(f"<{'/' if side == 'close' else ''}{_INLINE[kind]}>")
                continue
            match token.type:
                case "text" | "html_inline":
                    self._out.append(escape(token.content, quote=False))
                case "code_inline":
                    self._out.append(f"<code>{escape(token.content, quote=False)}</code>")
                case "softbreak" | "hardbreak":
                    self._out.append("\n")
                case "link_open":
                    self._open_link(str(token.attrGet("href") or ""))
                case "link_close":
                    self._out.append("</a>" if self._in_link.pop() else "")
                case "image":
                    self._out.append(escape(token.content or str(token.attrGet("src")), quote=False))
                case _:
                    pass

    def _open_link(self, href: str) -> None:
        self._in_link.append(href.startswith(_LINKS))
        if self._in_link[-1]:
            self._out.append(f'<a href="{escape(href)}">')

    def _table(self, token: Token, rows: list[list[str]]) -> None:
        match token.type:
            case "tr_open":
                rows.append([])
            case "inline":
                rows[-1].append(token.content)
            case "table_close":
                self._rows = None
                widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
                lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
                self._out.append(f"<pre>{escape(chr(10).join(line.rstrip() for line in lines))}</pre>\n\n")
            case _:
                pass

    def _trim(self) -> None:
        while self._out and not self._out[-1].strip():
            self._out.pop()
        if self._out:
            self._out[-1] = self._out[-1].rstrip()
