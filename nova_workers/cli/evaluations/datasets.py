"""`nova datasets`: examples by which versions of agents are compared."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.clock import SystemClock
from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import FinishStatus, Rating
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.evaluations.example_files import batches, line_of, read_examples
from nova_workers.cli.resources import Argument, Filter, action, deletion, group, listing
from nova_workers.cli.terminal.output import Facts, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.content import text_of
from nova_workers.contracts.http.datasets import (
    DatasetCreate,
    DatasetView,
    ExamplesAdd,
    ExamplesAdded,
    ExamplesFromRuns,
    ExampleView,
    Shares,
)

app = group("Collect examples, by which versions of agents are compared.", lists=True)

DatasetArgument = Annotated[str, typer.Argument(help="The dataset's name.")]
_DATASET = Argument("dataset", DatasetArgument)
_SPLIT = "Such as test; or shares by which examples are divided, such as train=0.8,test=0.2."
SplitOption = Annotated[str | None, typer.Option(help=_SPLIT)]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag of the examples; may be repeated.")]


def _facts(dataset: DatasetView) -> Facts:
    redacted = [name for name in ("emails", "numbers", "secrets") if getattr(dataset.redact, name)]
    redacted += [f"{len(dataset.redact.words)} words"] if dataset.redact.words else []
    return (
        ("name", dataset.name),
        ("description", dataset.description or None),
        ("version", dataset.version),
        ("examples", dataset.examples),
        ("redacts", ", ".join(redacted) or None),
        ("updated", dataset.updated_at),
    )


listing(
    app,
    "List datasets.",
    lambda nova: nova.datasets.list,
    Rows[DatasetView](
        "No datasets. Make one with nova datasets create NAME.",
        Column("name", lambda one: one.name),
        Column("version", lambda one: one.version),
        Column("examples", lambda one: one.examples),
        Column("description", lambda one: short(one.description), "text"),
        Column("updated", lambda one: one.updated_at, "spare"),
    ),
)
listing(
    app,
    "List the examples of a dataset.",
    lambda nova: nova.datasets.examples,
    Rows[ExampleView](
        "No examples. Add some with nova datasets import or nova datasets take.",
        Column("key", lambda one: one.key),
        Column("input", lambda one: short(text_of(tuple(one.input))), "text"),
        Column("expected", lambda one: None if one.expected is None else short(str(one.expected)), "spare"),
        Column("split", lambda one: one.split, "spare"),
        Column("tags", lambda one: ", ".join(one.tags) or None, "spare"),
        Column("calls", lambda one: len(one.calls) or None, "spare"),
    ),
    name="examples",
    of=_DATASET,
    version=Filter("Those of this version; else the present one.", int, min=1),
    split=Filter("Only those of this split."),
    tag=Filter("Only those with this tag; may be repeated.", list[str]),
)
action(app, "show", "Show a dataset.", _DATASET, lambda nova, name: nova.datasets.get(name), _facts)


@remote(app, "create")
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="Small letters, digits, _ and -.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    redact: Annotated[
        list[str] | None,
        typer.Option(
            help="emails, numbers or secrets: take these out of each example before it is stored; may be repeated."
        ),
    ] = None,
    redact_word: Annotated[list[str] | None, typer.Option(help="Take this text out; may be repeated.")] = None,
) -> None:
    """Create a dataset."""
    rules = {**dict.fromkeys(redact or (), True), "words": redact_word or []}
    body = build(DatasetCreate, {"name": name, "description": description, "redact": rules})
    session.out.record(await session.client.datasets.create(body), _facts)


@remote(app, "add")
async def add(
    session: Session,
    dataset: DatasetArgument,
    input: Annotated[str, typer.Argument(help="The user's message.")],
    expected: Annotated[str | None, typer.Option(help="The expected answer.")] = None,
    rubric: Annotated[str | None, typer.Option(help="What a good answer has.")] = None,
    key: Annotated[str | None, typer.Option(help="Its name; one of this name is replaced.")] = None,
    split: Annotated[str | None, typer.Option(help="Such as train or test.")] = None,
    tag: TagOption = None,
) -> None:
    """Add an example."""
    example = given(input=input, expected=expected, rubric=rubric, key=key, split=split, tags=tag or None)
    body = build(ExamplesAdd, {"examples": [example]})
    session.out.record(await session.client.datasets.add(dataset, body), _outcome)


@remote(app, "import")
async def import_examples(
    session: Session,
    dataset: DatasetArgument,
    file: Annotated[Path, typer.Argument(help="JSON lines, or CSV with the columns input, expected and others.")],
    split: SplitOption = None,
) -> None:
    """Add the examples of a file, or none of them if a line is wrong."""
    examples = read_examples(file)
    parts = _split(split)
    name = parts if isinstance(parts, str) else None
    shares = parts if isinstance(parts, Shares) else None
    if name is not None:
        examples = [one if one.split else one.model_copy(update={"split": name}) for one in examples]
    done = [
        await session.client.datasets.add(dataset, ExamplesAdd(examples=batch, split=shares))
        for batch in batches(examples)
    ]
    total = ExamplesAdded(
        version=done[-1].version,
        added=sum(one.added for one in done),
        replaced=sum(one.replaced for one in done),
        unchanged=sum(one.unchanged for one in done),
    )
    session.out.record(total, _outcome)


@remote(app, "take")
async def take(
    session: Session,
    dataset: DatasetArgument,
    run: Annotated[list[str] | None, typer.Option(help="This run; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    status: Annotated[FinishStatus | None, typer.Option(help="Only those that ended so.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Only those of the last days.")] = None,
    rated: Annotated[Rating | None, typer.Option(help="Only those that were rated up, or down.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only those that called this tool.")] = None,
    text: Annotated[str | None, typer.Option(help="Only those with this text.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="The newest so many.")] = 50,
    no_context: Annotated[bool, typer.Option("--no-context", help="Without the conversation before.")] = False,
    expect_answer: Annotated[
        bool, typer.Option("--expect-answer", help="The answer of the run is the expected one.")
    ] = False,
    split: SplitOption = None,
    tag: TagOption = None,
) -> None:
    """Take examples from ended runs: their message, what came before it, and their tool calls with results."""
    selection = given(
        run_ids=run or None,
        agent_id=agent,
        thread_id=thread,
        status=status,
        since=None if days is None else SystemClock().now() - timedelta(days=days),
        rated=rated,
        tool=tool,
        text=text,
    )
    body = build(
        ExamplesFromRuns,
        {
            "runs": selection,
            "limit": limit,
            "context": not no_context,
            "expected": "answer" if expect_answer else "none",
            "split": _split(split),
            "tags": tag or [],
        },
    )
    session.out.record(await session.client.datasets.take(dataset, body), _outcome)


@remote(app, "export")
async def export(
    session: Session,
    dataset: DatasetArgument,
    file: Annotated[Path | None, typer.Argument(help="The file; else standard output.")] = None,
    version: Annotated[int | None, typer.Option(min=1, help="This version; else the present one.")] = None,
) -> None:
    """Write the examples of a dataset as JSON lines, which nova datasets import reads."""
    target = sys.stdout if file is None else file.open("w", encoding="utf-8")
    count = 0
    cursor: str | None = None
    try:
        while True:
            page = await session.client.datasets.examples(dataset, version=version, limit=200, cursor=cursor)
            target.writelines(f"{line_of(example)}\n" for example in page.items)
            count += len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
    finally:
        if file is not None:
            target.close()
    if file is not None:
        session.out.note(f"{count} examples in {file}.")


@remote(app, "remove")
async def remove(
    session: Session,
    dataset: DatasetArgument,
    key: Annotated[list[str], typer.Argument(help="Keys of examples.")],
) -> None:
    """Remove examples. Earlier versions of the dataset keep them."""
    for each in key:
        await session.client.datasets.remove(dataset, each)
    session.out.record(await session.client.datasets.get(dataset), _facts)


deletion(app, "Delete datasets.", "datasets: Names of datasets.", lambda nova: nova.datasets.delete)


def _outcome(added: ExamplesAdded) -> Facts:
    skipped = ", ".join(f"{run} ({why})" for run, why in added.skipped.items())
    return (
        ("version", added.version),
        ("added", added.added),
        ("replaced", added.replaced or None),
        ("unchanged", added.unchanged or None),
        ("shortened", added.shortened or None),
        ("skipped", skipped or None),
    )


def _split(split: str | None) -> str | Shares | None:
    """Return a split, or how examples are divided.

    Raises:
        InvalidInput: A share is no number.
    """
    if split is None or "=" not in split:
        return split
    shares: dict[str, float] = {}
    for part in split.split(","):
        name, _, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError as error:
            raise InvalidInput(f"--split: {part!r} is no share, such as train=0.8.") from error
    return build(Shares, {"shares": shares})
