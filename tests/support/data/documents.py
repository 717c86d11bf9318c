"""The documents for tests: pages, their fenced blocks, and the commands in shell blocks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
_HEREDOC = re.compile(r"<<'(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
_OPERATORS = "();<>|&\n"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: Where its text begins, from 1.
        not_run: Why a test does not run it, as the comment above it says; None when it does.
    """

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page that people read."""
    top = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    return [*(ROOT / name for name in top), *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(language: str, page: Path | None = None) -> list[Block]:
    """Return the fenced blocks of a language, of one page or of all."""
    return [
        Block(
            page=path,
            line=text[: match.start("text")].count("\n") + 1,
            language=language,
            text=re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            not_run=match["why"],
        )
        for path in ([page] if page else pages())
        for text in [path.read_text("utf-8")]
        for match in _BLOCK.finditer(text)
        if match["language"] == language
    ]


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell block, also of those within ``$(…)``."""
    text = _HEREDOC.sub("", block.text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, "\n"]:
        if token.strip(_OPERATORS):
            words.append(token)
            continue
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if words:
            yield words
        words = []


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def code_spans(page: Path) -> list[str]:
    """Return the code spans of a page, each on one line."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]


def links(page: Path) -> list[str]:
    """Return the targets of a page's links."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the fragments that a page's headings have."""
    return {_slug(heading) for heading in _HEADING.findall(prose(page))}


def _slug(heading: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[\s]+", "-", plain)
