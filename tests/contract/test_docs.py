"""The documents are true: snippets run, commands parse, names exist, tables are complete."""

import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import typer
from packaging.requirements import Requirement
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, SecretStr
from pytest_examples import CodeExample, find_examples

from nova_workers.base.config import Settings, unknown_variables
from nova_workers.base.errors import EngineErrorKind, NewerValue, NovaError, Rejected, Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import OutageReason, QueuedReason, words_of
from nova_workers.cli.app import app as cli
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.evaluators import evaluator_adapter
from nova_workers.engines.scripted.script import find_script
from nova_workers.ledger.database import Database
from tests.requirements import REQUIREMENTS, proves
from tests.support.data import connect_page
from tests.support.data.documents import ROOT, Block, anchors, blocks, code_spans, commands, links, pages
from tests.support.data.idle_api import idle_api

DOCS = ROOT / "docs"
CLIENT_VARIABLES = {"NOVA_API_URL", "NOVA_API_KEY"}
FOREIGN_ENDPOINTS = {("POST", "/v1/embeddings"), ("POST", "/v1/audio/transcriptions")}
"""Of servers that we talk to."""
METHODS = "GET|POST|PUT|PATCH|DELETE"
_API_URL = re.compile(r"\$NOVA_API_URL|http://127\.0\.0\.1:8700")
_Thing = TypeVar("_Thing")
_ROOMS = r"(?:nova_workers|api|beat|models|tests|docs|deploy)/[\w./*-]+"


def _shell(program: str) -> list[tuple[Block, list[str]]]:
    return [(block, words) for block in blocks("sh") for words in commands(block) if words[0] == program]


def _check_each(things: Iterable[tuple[object, _Thing]], check: Callable[[_Thing], None]) -> None:
    """Check all of these, each with where it is, and report every one that fails."""
    wrong: list[str] = []
    for where, thing in things:
        try:
            check(thing)
        except Exception as error:
            wrong.append(f"{where}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def _check_pages(check: Callable[[Path], None]) -> None:
    _check_each(((page.relative_to(ROOT), page) for page in pages()), check)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return idle_api().openapi()


# Snippets


def _examples() -> list[CodeExample]:
    """Return the Python of all pages but what needs a fleet, which other tests run."""
    elsewhere = {(block.page, block.line) for block in blocks("python") if block.not_run is not None}
    found = find_examples(*(str(page) for page in pages()))
    return [example for example in found if (example.path, example.start_line + 1) not in elsewhere]


@pytest.mark.parametrize("example", _examples(), ids=str)
def test_every_python_snippet_runs(example: CodeExample) -> None:
    # Not by the library's own runner, whose report of a failure ends the whole session.
    code = compile("\n" * example.start_line + example.source, str(example.path), "exec")
    exec(code, {"__name__": "snippet"})


def test_every_json_snippet_is_json() -> None:
    def check(block: Block) -> None:
        value = json.loads(block.text)
        if isinstance(value, list):
            if "kind" in value[0]:
                assert [evaluator_adapter.validate_python(one) for one in value]
                return
            # The only other lists that the documents show are scripts.
            assert find_script(Message("user", (text_block(""),)), EngineOptions(engine_config={"script": value}))

    _check_each(((block, block) for block in blocks("json")), check)


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
async def test_every_sql_snippet_runs_on_a_fresh_database(block: Block, database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(block.text)


def test_every_shell_snippet_is_well_formed() -> None:
    def check(block: Block) -> None:
        checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert not checked.stderr

    _check_each(((block, block) for block in blocks("sh")), check)


def test_every_command_that_is_shown_parses() -> None:
    nova: Any = typer.main.get_command(cli)

    def check(words: list[str]) -> None:
        name, command, rest = "nova", nova, words[1:]
        context = command.context_class(command, info_name=name)
        while hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(context, rest)
        # Refuses unknown options, wrong choices and missing arguments; runs nothing.
        command.make_context(name, list(rest), parent=context)

    _check_each(_shell("nova"), check)


def test_every_request_that_is_shown_fits_the_schema(schema: dict[str, Any]) -> None:
    def check(words: list[str]) -> None:
        path = next(parts[1] for word in words if len(parts := _API_URL.split(word)) > 1)
        body = words[words.index("-d") + 1] if "-d" in words else None
        implied = "GET" if body is None else "POST"
        operation = _operation(schema, words[words.index("-X") + 1] if "-X" in words else implied, path)
        if body is not None:
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            known = schema["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
            assert set(json.loads(body)) <= set(known)

    _check_each(_shell("curl"), check)


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def check(page: Path) -> None:
        named = {words[1] for block in blocks("sh", page) for words in commands(block) if words[0] == "make"}
        named |= {found[1] for span in code_spans(page) if (found := re.fullmatch(r"make (\w+)", span))}
        assert named <= targets

    _check_pages(check)


# Names


def test_every_variable_that_is_named_exists() -> None:
    known = {*_defaults(), *CLIENT_VARIABLES}

    def check(page: Path) -> None:
        named = set(re.findall(r"\bNOVA_[A-Z][A-Z0-9_]*\b", page.read_text("utf-8")))
        # An item of a map has a variable of its own, too.
        assert [name for name in named - known if unknown_variables({name: "1"})] == []

    _check_pages(check)


def test_every_endpoint_that_is_named_exists(schema: dict[str, Any]) -> None:
    def check(page: Path) -> None:
        for span in code_spans(page):
            found = re.fullmatch(rf"({METHODS}) (/v1/\S+)", span)
            if found and found.groups() not in FOREIGN_ENDPOINTS:
                _operation(schema, found[1], found[2])

    _check_pages(check)


def test_every_file_that_is_named_exists() -> None:
    def check(page: Path) -> None:
        named = [span for span in code_spans(page) if re.fullmatch(_ROOMS, span)]
        assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []

    _check_pages(check)


def test_every_link_has_a_target() -> None:
    def check(page: Path) -> None:
        for link in links(page):
            if link.startswith(("https://", "http://")):
                continue
            target, _, fragment = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), link
            assert not fragment or fragment in anchors(path), link

    _check_pages(check)


def test_the_lines_for_clients_are_those_of_the_console() -> None:
    page = connect_page.PAGE.read_text("utf-8")
    whole = connect_page.prose_of(page) + connect_page.rendered()
    assert page == whole, "write them again: python -m tests.support.data.connect_page"


# Tables


def test_the_configuration_page_lists_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `(NOVA_\w+)` \| (.+?) \|", (DOCS / "configuration.md").read_text("utf-8"), re.MULTILINE)
    shown = {name: default.strip("`") for name, default in rows if name not in CLIENT_VARIABLES}
    assert shown == _defaults()


def test_the_api_page_lists_every_endpoint(schema: dict[str, Any]) -> None:
    rows = re.findall(rf"^\| `({METHODS}) (/\S+)` \|", (DOCS / "http-api.md").read_text("utf-8"), re.MULTILINE)
    there = {(method.upper(), path) for path, methods in schema["paths"].items() for method in methods}
    assert set(rows) == there


def test_the_api_page_lists_every_error_code() -> None:
    table = (DOCS / "http-api.md").read_text("utf-8").partition("## Errors")[2].partition("## Endpoints")[0]
    raised = {kind.code for kind in _family(Rejected) if kind.__module__ in {"nova_workers.base.errors", "api.errors"}}
    assert raised | {Unavailable.code} <= set(re.findall(r"`(\w+)`", table))


_API_MODULES = re.compile(r"(?:nova_workers\.base\.errors|nova_workers\.base\.http_server\..*|api\..*)")
_WITHOUT_CLASS = {"method_not_allowed", "internal_error"}


def _trouble(heading: str) -> list[str]:
    """Return the codes of the first column of a table of the troubleshooting page."""
    section = (DOCS / "troubleshooting.md").read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [code for first in firsts for code in re.findall(r"`(\w+)`", first) if code != "code"]


@proves("docs.errors")
def test_the_troubleshooting_page_has_a_row_for_every_code_of_the_api() -> None:
    answers = {
        kind.code
        for kind in _family(NovaError)
        if issubclass(kind, Rejected | Unavailable | NewerValue) and _API_MODULES.fullmatch(kind.__module__)
    }
    assert sorted(_trouble("Errors of the API")) == sorted((answers - {Rejected.code}) | _WITHOUT_CLASS)


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("Failed runs", words_of(EngineErrorKind)),
        ("Runs that wait", words_of(QueuedReason)),
        ("Providers", words_of(OutageReason)),
    ],
)
def test_the_troubleshooting_page_has_a_row_for_every_reason(heading: str, words: tuple[str, ...]) -> None:
    assert sorted(_trouble(heading)) == sorted(words)


def test_every_metric_that_the_monitoring_page_names_exists() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    samples = re.compile(r"_(?:total|bucket|count|sum|created)$")
    there = {metric.name for metric in registry.collect()}
    named = set(re.findall(r"\bnova_[a-z_]+", (DOCS / "monitoring.md").read_text("utf-8")))
    assert len(named) > 20
    assert {samples.sub("", name) for name in named} <= there


def test_the_decision_on_dependencies_lists_every_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    given = [
        *project["project"]["dependencies"],
        *(name for extra in project["project"].get("optional-dependencies", {}).values() for name in extra),
        *(name for group in project.get("dependency-groups", {}).values() for name in group if isinstance(name, str)),
    ]
    page = (DOCS / "decisions" / "0003-dependencies.md").read_text("utf-8").partition("## Copyleft")[0]
    shown = set(re.findall(r"^\| ([a-z][\w-]*) \|", page, re.MULTILINE)) - {"package"}
    assert shown == {Requirement(one).name for one in given} - {"nova-workers"}


def test_the_readme_promises_only_what_tests_prove() -> None:
    section = (ROOT / "README.md").read_text("utf-8").partition("## What is promised")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z-]+(?:\.[a-z-]+)?)`", re.sub(r"^\|[^|]*\|", "", section, flags=re.MULTILINE))
    assert len(named) > 20
    assert set(named) <= set(REQUIREMENTS)


def test_the_decisions_are_all_listed() -> None:
    there = {page.name for page in (DOCS / "decisions").glob("0*.md")}
    assert there == {link for link in links(DOCS / "decisions" / "index.md") if link.startswith("0")}
    assert there <= set(re.findall(r"decisions/(0[\w-]+\.md)", (DOCS / "site" / "mkdocs.yml").read_text("utf-8")))


def _family(parent: type[NovaError]) -> Iterator[type[NovaError]]:
    for child in parent.__subclasses__():
        yield child
        yield from _family(child)


def _operation(schema: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    for template, operations in schema["paths"].items():
        pattern = re.sub(r"\{\w+\}", r"[^/]+", template)
        if re.fullmatch(pattern, path) and method.lower() in operations:
            return operations[method.lower()]
    raise AssertionError(f"The API has no {method} {path}")


def _defaults() -> dict[str, str]:
    """Return every variable with its default, as the page writes it."""
    return dict(_variables(Settings.model_construct(home=Path("~/.nova")), "NOVA_"))


def _variables(section: BaseModel, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name, None) if name == "home" else field.get_default(call_default_factory=True)
        variable = f"{prefix}{name.upper()}"
        if isinstance(value, BaseModel):
            found += _variables(value, f"{variable}__")
        else:
            found.append((variable, _written(value)))
    return found


def _written(value: object) -> str:
    match value:
        case None:
            return "unset"
        case SecretStr():
            return "secret"
        case str() | Path():
            return str(value)
        case _:
            return json.dumps(value)
