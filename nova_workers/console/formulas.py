r"""Formulas in LaTeX, as people and models write them in Markdown, as MathML, which browsers draw without a script.

``$…$`` and ``\(…\)`` are in a line, ``$$…$$`` and ``\[…\]`` stand in one of their own. What is no formula, or too
long to be one, is shown as it was written.

The parser's own plugins know either dollars or brackets, and the one for brackets reads on to the end of the text at
each that is open: a hostile text would take quadratic time.
"""

import re
from html import unescape
from typing import Final
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import Converter
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markupsafe import escape

_FORMULA_CHARS: Final = 2_000
_ALL_CHARS: Final = 8_000
"""Bound on all formulas of a text: they cost about 20 µs a character."""
_DEFINITIONS: Final = ("command", r"\newenv", r"\renewenv", r"\def", r"\let", r"\Declare")
"""Of commands that define others, by which a short text could become a long formula."""
_ENDS: Final = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}
_DOLLARS: Final = re.compile(r"\$(?![\s$])((?:[^$\\]|\\.){1,2000})(?<!\s)\$(?![\w$])", re.DOTALL)
"""No space inside of the signs, and no letter or digit behind: those are amounts of money, and names of variables."""

FORMULA_TAGS: Final = frozenset(
    {"math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup"}
    | {"munder", "mover", "munderover", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom", "menclose"}
    | {"mmultiscripts", "mprescripts"}
)
FORMULA_ATTRIBUTES: Final = frozenset(
    {"display", "mathvariant", "stretchy", "fence", "form", "separator", "largeop", "movablelimits", "accent"}
    | {"accentunder", "linethickness", "columnalign", "columnlines", "rowlines", "columnspacing", "rowspacing"}
    | {"width", "height", "depth", "lspace", "rspace", "minsize", "maxsize", "displaystyle", "scriptlevel", "notation"}
    | {"mathcolor"}
)


class Formulas:
    """The formulas of one text, which together have a bound."""

    def __init__(self) -> None:
        self._left = _ALL_CHARS

    def render(self, source: str, *, is_block: bool) -> str:
        """Return a formula as MathML, or its source as text."""
        self._left -= len(source)
        found = None if self._left < 0 else _mathml(source.strip(), "block" if is_block else "inline")
        return f"<code>{escape(source.strip())}</code>" if found is None else found


def _mathml(source: str, display: str) -> str | None:
    if len(source) > _FORMULA_CHARS or any(part in source for part in _DEFINITIONS):
        return None
    try:
        element = Converter(display=display).convert_to_element(source)
        _resolve(element)
        return tostring(element, encoding="unicode")
    except Exception:
        # What is no formula ends in one of many errors: its own, StopIteration, IndexError, and RecursionError.
        return None


def _resolve(element: Element) -> None:
    """Write characters for the references of the library, which are text in its elements. A text stays a text."""
    for each in element.iter():
        each.text = unescape(each.text) if each.text else each.text
        each.tail = unescape(each.tail) if each.tail else each.tail


def read_formulas(markdown: MarkdownIt) -> None:
    """Let a parser of Markdown find formulas: tokens ``math_inline`` and ``math_block`` with their sources."""
    markdown.inline.ruler.before("escape", "math_inline", _inline)
    markdown.block.ruler.before("fence", "math_block", _block, {"alt": ["paragraph", "reference", "blockquote"]})


def _inline(state: StateInline, silent: bool) -> bool:
    """Read a formula within a line."""
    begin = state.pos
    if state.src[begin] == "$" and not state.src.startswith("$$", begin):
        found = _DOLLARS.match(state.src, begin, state.posMax)
        if found is None or state.src[begin - 1 : begin].isalnum():
            return False
        source, end = found[1], found.end()
    else:
        source = _source_at(state.src, begin, state.posMax)
        if source is None:
            return False
        end = begin + len(source) + 4
    if not silent:
        state.push("math_inline", "math", 0).content = source
    state.pos = end
    return True


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Read a formula that begins a line and ends one."""
    begin = state.bMarks[start_line] + state.tShift[start_line]
    source = None if state.is_code_block(start_line) else _source_at(state.src, begin, state.eMarks[end_line - 1])
    if source is None or state.src.startswith(r"\(", begin):
        return False
    end = begin + len(source) + 4
    last = next(line for line in range(start_line, end_line) if state.eMarks[line] >= end)
    if state.src[end : state.eMarks[last]].strip():
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        # Without the marks of a quotation that it is in.
        lines = (state.src[state.bMarks[line] : state.eMarks[line]] for line in range(start_line, last + 1))
        token.content = "\n".join(lines).strip()[2:-2]
        token.map = [start_line, last + 1]
    state.line = last + 1
    return True


def _source_at(text: str, begin: int, limit: int) -> str | None:
    """Return the text between two marks of `_ENDS`, the first of which is at `begin`; None if there is none."""
    mark = text[begin : begin + 2]
    if mark not in _ENDS:
        return None
    end = text.find(_ENDS[mark], begin + 2, min(limit, begin + 2 + _FORMULA_CHARS))
    source = text[begin + 2 : end] if end > 0 else ""
    return source if source.strip() and mark not in source and "\n\n" not in source else None
