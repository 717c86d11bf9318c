"""One word has one meaning: no file uses a word that the glossary of CONTRIBUTING.md replaces by another."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from models.tables import metadata
from tests.support.data.documents import ROOT

TOPS = ("nova_workers", "api", "beat", "models", "tests", "deploy", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
SUFFIXES = frozenset({".py", ".lua", ".md", ".sh", ".sql", ".toml", ".yaml", ".yml", ".service", ".env", ".ts"})

NOT_READ = (
    # They ran on databases that exist; a later migration replaces the comments that they wrote.
    "models/migrations/versions/",
)
KEPT = {
    # Names that are not ours.
    r"\.cancel(led|ling)\(": "methods of asyncio",
    r'"(notifications/)?cancelled"': "a status of OpenAI's, MCP's and AG-UI's, and a notification of MCP's",
    r"[`\"]nobody[`\"]": "an account of Unix",
    # Prompts are English prose for models.
    r"\b[Nn]obody (answer(s|ed) in time|can be asked|reads your answer)|Tell it to nobody": "prompts",
    r"ask nobody, and use|when somebody refers to|what whoever goes on must know": "prompts",
    r"the user is told of it": "prompts",
}

# Verbs with forms beside those of `_forms`.
IRREGULAR = {"give": ("gave", "given"), "run": ("ran", "running"), "let": ("letting",)}


class Term(NamedTuple):
    """A term of the glossary, and a pattern that finds the words that it replaces in lower case."""

    name: str
    replaced: re.Pattern[str]


class Finding(NamedTuple):
    """A replaced word, and where it is in a text."""

    start: int
    end: int
    word: str
    term: str


def _forms(phrase: str) -> list[str]:
    """Return patterns of a phrase, its first word in every form; also of one that is wrapped or in an identifier."""
    first, *rest = phrase.split()
    inflected = first.removesuffix("e") + "(?:e|es|s|ed|d|ing)?"
    return [r"[\s#*_-]+".join([form, *rest]) for form in (inflected, *IRREGULAR.get(first, ()))]


def _glossary() -> list[Term]:
    """Return the terms of CONTRIBUTING.md whose last column has words; words in italics have other uses."""
    section = _glossary_section.search((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert section is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section[0].splitlines() if "|" in line]
    terms: list[Term] = []
    for name, _, replaced in rows[2:]:
        phrases = [phrase.strip() for phrase in replaced.split(",") if phrase.strip() and "*" not in phrase]
        if phrases:
            # Begins with letters and nothing else, so that the search jumps to them: there are millions of characters.
            forms = "|".join(form for phrase in phrases for form in _forms(phrase))
            terms.append(Term(name, re.compile(rf"(?:{forms})(?![^\W\d_])")))
    return terms


_glossary_section = re.compile(r"^## Glossary\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_kept = re.compile("|".join(KEPT))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"\S", "·", found[0])


def _files() -> Iterator[Path]:
    yield from (ROOT / page for page in PAGES)
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*")):
            name = str(path.relative_to(ROOT))
            is_ours = not name.startswith(NOT_READ) and "node_modules" not in path.parts and path != Path(__file__)
            if path.suffix in SUFFIXES and is_ours:
                yield path


def _find(text: str, terms: list[Term]) -> list[Finding]:
    lower = text.lower()
    return [
        Finding(match.start(), match.end(), text[match.start() : match.end()], term.name)
        for term in terms
        for match in term.replaced.finditer(lower)
        if not lower[match.start() - 1 : match.start()].isalpha()
    ]


def _in_prose(findings: list[Finding], source: str, *, with_data: bool) -> list[Finding]:
    """Return the findings in comments, docstrings and names of a Python file and, `with_data`, in other strings."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    docstrings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    spans = [
        (starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1])
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.COMMENT, tokenize.NAME)
        or token.start in docstrings
        or (with_data and tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"))
    ]
    return [found for found in findings if any(start <= found.start and found.end <= end for start, end in spans)]


def _wrong(path: Path, terms: list[Term]) -> list[Finding]:
    text = path.read_text("utf-8")
    if not _find(text, terms):
        return []
    findings = _find(_kept.sub(_blank, _glossary_section.sub(_blank, text)), terms)
    if path.suffix != ".py":
        return findings
    # Strings of tests are messages, names and answers: data, as a person may write them.
    return _in_prose(findings, text, with_data=not path.is_relative_to(ROOT / "tests") or path.stem == "requirements")


def test_no_file_uses_a_word_that_the_glossary_replaces() -> None:
    terms = _glossary()
    wrong = [
        f"{path.relative_to(ROOT)}:{path.read_text('utf-8').count(chr(10), 0, found.start) + 1}: "
        f"{found.word!r}: the glossary has {found.term!r}"
        for path in _files()
        for found in _wrong(path, terms)
    ]
    assert not wrong, "\n".join(["The glossary (CONTRIBUTING.md) replaces these words:", *wrong])


def test_words_are_found_in_comments_docstrings_and_names_and_not_in_the_data_of_tests() -> None:
    source = '''\
def tell_nobody(agent: str = "nobody") -> None:
    """Mends what was
    handed
    back."""
    # The row stands in line, amended.
    send("whoever")
'''
    found = _in_prose(_find(source, _glossary()), source, with_data=False)
    assert [each.word.split() for each in found] == [["in", "line"], ["handed", "back"], ["Mends"], ["nobody"]]


_NOT_IN_NAMES = frozenset({"line", "lines", "place", "places", "room", "rooms", "slot", "slots", "told"})
"""Words that the glossary refuses in one meaning: names of the schema, the API and the settings have none of them."""
_KEPT_NAMES = {
    "slots": "worker slots",
    "place": "of an agent in its tree, within the fleet only",
    # Columns and fields of a release are not renamed: it runs beside this one.
    "trigger_told": "of release 0.2.0",
    "next_slot_at": "of release 0.2.0",
}


def _names() -> Iterator[str]:
    for table in metadata.tables.values():
        yield table.name
        yield from (column.name for column in table.columns)
        yield from (str(each.name) for each in (*table.indexes, *table.constraints))
    for room in ("contracts", "base/config"):
        for path in (ROOT / "nova_workers" / room).rglob("*.py"):
            yield from re.findall(r"^    (\w+): ", path.read_text("utf-8"), re.MULTILINE)


def test_names_of_the_schema_and_the_api_are_words_of_the_glossary() -> None:
    wrong = {name for name in _names() if _NOT_IN_NAMES.intersection(name.split("_"))}
    assert wrong == _KEPT_NAMES.keys()


_phrases_section = re.compile(r"^## Documents\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def _stilted() -> re.Pattern[str]:
    """Return a pattern of the phrases that CONTRIBUTING.md refuses in documents."""
    section = _phrases_section.search((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert section is not None
    rows = [line.strip("|").split("|")[0] for line in section[0].splitlines() if line.startswith("| ")]
    phrases = [phrase.strip().replace(" ", r"\s+") for row in rows[2:] for phrase in row.split(",")]
    assert len(phrases) > 5
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b", re.IGNORECASE)


def test_no_document_uses_a_phrase_that_has_to_be_decoded() -> None:
    stilted = _stilted()
    assert stilted.search("A turn is dear.")
    wrong = [
        f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}"
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
        for text in [page.read_text("utf-8")]
        for found in stilted.finditer(text)
    ]
    assert not wrong, "\n".join(["CONTRIBUTING.md (Documents) has plain words for these:", *wrong])
