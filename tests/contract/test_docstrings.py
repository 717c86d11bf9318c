"""Docstrings are sentences: that of a function begins with a verb, and no argument is described by its own name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.data.documents import ROOT

_ROOMS = ("nova_workers", "api", "beat", "models")
_NOT_READ = ("models/migrations/versions/", "nova_workers/client/sync/")
"""Migrations that ran, and what is generated."""

_NO_VERBS = frozenset(
    """
    a all an and any as at below beside between both by each either every few for from her his how in into its least
    less like many more most much neither no none nor not nothing of on one only or our out over same several some such
    than that the their then there these they this those though through to too two under until up what when where
    whether which while who why with within without
    """.split()
)
_VERBS = re.compile(r"called|(?:.*(?:ss|[br]ing|eed|embed))")
"""Words that are verbs in spite of their endings. ``Called when …`` is how a listener's method begins."""
_OPEN = re.compile(r"(?:Above|As|Among|Below|Beside|Between|By|For|From|In|Of|On|Than|To|Until|With|Within|Without)\b")
"""Begins a docstring that has no subject, unless a main clause follows after a comma."""
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}\**(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", re.MULTILINE)
_EMPTY = frozenset("a an are as be for given in is it its of or that the this to used which".split())
"""Words that say nothing about an argument."""


class Finding(NamedTuple):
    """What is wrong with a docstring."""

    line: int
    problem: str
    text: str


_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _docstrings(definition: _Definition) -> Iterator[tuple[_Definition | None, ast.Constant]]:
    """Yield each docstring with the definition that it begins; those of attributes and constants with None."""
    for place, each in enumerate(definition.body):
        match each:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield (definition if place == 0 else None), text
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _docstrings(each)
            case _:
                pass


def _is_function(node: _Definition | None) -> bool:
    """Whether it is a function and no property, which is described by what it is."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
        "property" in ast.unparse(each) for each in node.decorator_list
    )


def _begins_with_a_verb(sentence: str) -> bool:
    first = re.split(r"[\s,;.]", sentence, maxsplit=1)[0]
    word = first.lower()
    if word in _NO_VERBS or not word.isalpha():
        return False
    return _VERBS.fullmatch(word) is not None or not word.endswith(("ing", "ed", "s"))


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]{2,}", text.lower())}


def _problems(owner: _Definition | None, text: str) -> Iterator[tuple[str, str]]:
    sentence = " ".join(re.split(r"(?<=[.:])\s", text.strip(), maxsplit=1)[0].split())
    if re.match(r"(?:Return|Yield) what\b", sentence):
        yield "does not name what is returned", sentence
    elif _is_function(owner) and not _begins_with_a_verb(sentence):
        yield "begins with no verb", sentence
    elif _OPEN.match(sentence) and "," not in sentence:
        yield "has no subject", sentence
    for section in _SECTION.findall(inspect.cleandoc(text) + "\n"):
        for name, description in _ARGUMENT.findall(section):
            if _words(description) - _EMPTY <= _words(name.replace("_", " ")):
                yield "describes an argument by its name", f"{name}: {description}"


def _findings(source: str) -> list[Finding]:
    return [
        Finding(node.lineno, problem, found)
        for owner, node in _docstrings(ast.parse(source))
        for problem, found in _problems(owner, str(node.value))
    ]


def test_docstrings_are_sentences() -> None:
    wrong = [
        f"{name}:{found.line}: {found.problem}: {found.text}"
        for room in _ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not (name := path.relative_to(ROOT).as_posix()).startswith(_NOT_READ)
        for found in _findings(path.read_text("utf-8"))
    ]
    assert not wrong, "\n".join(["CONTRIBUTING.md (Rooms) says how these are written:", *wrong])


def test_each_kind_of_docstring_that_is_no_sentence_is_found() -> None:
    source = '''\
LIMIT = 3
"""Of one request."""
OTHER = 3
"""In seconds, it bounds a request."""
def begin(tenant_id: str, first_at: float) -> bool:
    """Whether it began.

    Args:
        tenant_id: The tenant's id.
        first_at: When it may begin.
    """
def limits() -> list[int]:
    """Return what bounds a request."""
def names() -> list[str]:
    """Names of all."""
def process() -> None:
    """Process a request."""
class Request:
    """A request."""
    @property
    def has_begun(self) -> bool:
        """Whether it began."""
'''
    assert [(found.line, found.problem) for found in _findings(source)] == [
        (2, "has no subject"),
        (6, "begins with no verb"),
        (6, "describes an argument by its name"),
        (13, "does not name what is returned"),
        (15, "begins with no verb"),
    ]
