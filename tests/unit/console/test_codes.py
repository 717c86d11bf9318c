"""Ids and codes of the API stand on pages by names and words: in templates their values pass a filter."""

from __future__ import annotations

import pkgutil
import re
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from jinja2 import Environment, nodes
from pydantic import BaseModel

from nova_workers import console, contracts

_TEMPLATES = Path(console.__file__).parent / "templates"
_IN_TAG = re.compile(r"<[^<>]*$")
_FOR_COPYING = re.compile(r'(?:<code>|class="(?:sub )?id">)[^<]*$')
_EXCEPTIONS = {
    "default": "what a person asked for, in a question",
    "reason": "a sentence, wherever it is shown so",
    "judged_by": "models have no other name",
    "model_id": "models have no other name",
    "parent_task_id": "tasks have numbers",
    "policy_id": "policies of orders are known by it",
}


def _fields_of_codes() -> frozenset[str]:
    """Return the names of the API's fields that have one of some words, of which some are several."""
    found: set[str] = set()
    for info in pkgutil.walk_packages(contracts.__path__, f"{contracts.__name__}."):
        for thing in vars(import_module(info.name)).values():
            if isinstance(thing, type) and issubclass(thing, BaseModel):
                fields = thing.model_fields.items()
                found |= {name for name, field in fields if any("_" in word for word in _words(field.annotation))}
    return frozenset(found)


def _words(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (word for word in get_args(annotation) if isinstance(word, str))
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _words(part)


def _shown_raw(source: str, codes: frozenset[str]) -> list[str]:
    """Return the fields of ids and codes that a template shows as they are: as text, and not to be copied."""
    before, found = "", list[str]()
    for output in Environment(autoescape=True).parse(source).find_all(nodes.Output):
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                before += node.data
                continue
            for field in _printed(node):
                if (field.endswith(("_id", "_by")) or field in codes) and field not in _EXCEPTIONS:
                    found += [field] * (not _IN_TAG.search(before) and not _FOR_COPYING.search(before))
    return found


def _printed(node: nodes.Node) -> Iterator[str]:
    """Yield the fields whose values an expression may print unchanged."""
    if isinstance(node, nodes.Getattr):
        yield node.attr
    elif isinstance(node, nodes.Or):
        yield from (*_printed(node.left), *_printed(node.right))
    elif isinstance(node, nodes.CondExpr):
        yield from (*_printed(node.expr1), *(_printed(node.expr2) if node.expr2 else ()))


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("<td>{{ run.status }}</td>", ["status"]),
        ("<td>{{ run.status | words }} {{ run.title }}</td>", []),
        ("<td>{{ run.title or run.thread_id }}</td>", ["thread_id"]),
        ("{% if run.agent_id %}<p>of {{ run.agent_id }}{% endif %}", ["agent_id"]),
        ('<a href="/agents/{{ run.agent_id }}">{{ run.agent_id | agent }}</a>', []),
        ('<span class="sub id">{{ run.thread_id }}</span>', []),
    ],
)
def test_raw_codes_are_found(template: str, found: list[str]) -> None:
    assert _shown_raw(template, frozenset({"status"})) == found


def test_no_template_shows_an_id_or_a_code_as_it_is() -> None:
    codes = _fields_of_codes()
    assert {"status", "kind", "stop_reason"} <= codes
    faults = [
        f"{path.relative_to(_TEMPLATES)}: {field}"
        for path in sorted(_TEMPLATES.rglob("*.html"))
        for field in _shown_raw(path.read_text(encoding="utf-8"), codes)
    ]
    assert not faults, "\n".join(faults)
