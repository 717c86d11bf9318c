"""Changes of datasets. Each change of examples is one version, and one transaction, with the dataset's row locked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nova_workers.base.errors import Conflict, InvalidInput, existing, missing, too_many
from nova_workers.contracts.http.datasets import (
    MAX_DATASETS,
    MAX_EXAMPLES,
    MAX_KEPT_EXAMPLES,
    DatasetCreate,
    DatasetView,
    ExampleGive,
    ExamplesAdd,
    ExamplesAdded,
    ExamplesFromRuns,
    RunSelection,
    Shares,
)
from nova_workers.contracts.http.wire import RunStatus
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.datasets import sql as ledger
from nova_workers.domain.datasets.rules.examples import TooLarge, given_example, taken_example
from nova_workers.domain.datasets.rules.redaction import ExampleRedactor
from nova_workers.domain.datasets.sql import NewExample, SourceRun
from nova_workers.domain.runs.sql.filters import RunFilter
from nova_workers.domain.runs.sql.lists import list_runs
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.ledger.database import Connection

_ENDED: frozenset[RunStatus] = frozenset({"succeeded", "failed", "canceled"})


async def create_dataset(transaction: Connection, tenant_id: str, dataset: DatasetCreate) -> DatasetView:
    """Create a dataset.

    Raises:
        Conflict: There is one of its name.
        LimitExceeded: The tenant has the most.
    """
    made = await ledger.create_dataset(transaction, tenant_id, dataset, at_most=MAX_DATASETS)
    if made is not None:
        return made
    if await ledger.find_dataset(transaction, tenant_id, dataset.name) is None:
        raise too_many(MAX_DATASETS, "datasets", "Delete one that you no longer use.")
    raise Conflict(
        f"There is a dataset {dataset.name!r} already. Add examples to it, or choose another name.", name=dataset.name
    )


async def add_examples(transaction: Connection, tenant_id: str, name: str, given: ExamplesAdd) -> ExamplesAdded:
    """Add examples in one version. Those that are there already as given change nothing.

    Raises:
        NotFound: There is no such dataset.
        InvalidInput: An example is too large, or two have one key.
        LimitExceeded: The dataset would have too many examples.
    """
    dataset = await _locked(transaction, tenant_id, name)
    redactor = ExampleRedactor(dataset.redact)
    examples = [_checked(at, one, given.split, redactor) for at, one in enumerate(given.examples)]
    _refuse_repeated(examples)
    return await _add(transaction, tenant_id, dataset, examples)


async def take_examples(transaction: Connection, tenant_id: str, name: str, taking: ExamplesFromRuns) -> ExamplesAdded:
    """Take examples from the newest ended runs that match.

    Raises:
        NotFound: There is no such dataset.
        AgentRenamed: The agent has another id now.
        LimitExceeded: The dataset would have too many examples.
    """
    dataset = await _locked(transaction, tenant_id, name)
    await refuse_former_id(transaction, tenant_id, taking.runs.agent_id)
    found = await list_runs(transaction, tenant_id, _filter(taking.runs), past=None, limit=taking.limit, media=False)
    sources = await ledger.read_sources(transaction, tenant_id, [run.id for run in found.runs])
    redactor = ExampleRedactor(dataset.redact)
    skipped = dict.fromkeys(
        {run.id for run in found.runs} - {source.run_id for source in sources},
        "it never began, or its thread was deleted",
    )
    examples: list[NewExample] = []
    shortened = 0
    for source in sources:
        try:
            example, was_cut = await _take(transaction, tenant_id, source, taking, redactor)
        except TooLarge as error:
            skipped[source.run_id] = str(error)
        else:
            examples.append(example)
            shortened += was_cut
    added = await _add(transaction, tenant_id, dataset, examples)
    return added.model_copy(update={"shortened": shortened, "skipped": skipped})


async def remove_example(transaction: Connection, tenant_id: str, name: str, key: str) -> None:
    """Let the next version be without an example. The versions before keep it.

    Raises:
        NotFound: There is no such dataset, or its present version has no such example.
    """
    dataset = await _locked(transaction, tenant_id, name)
    if not await ledger.current_digests(transaction, tenant_id, dataset.id, [key]):
        raise missing("example", key, f"Version {dataset.version} of {name!r} has none of this key.")
    version = await ledger.raise_version(transaction, tenant_id, dataset.id)
    await ledger.remove_examples(transaction, tenant_id, dataset.id, version, [key])


async def version_of(connection: Connection, tenant_id: str, name: str, version: int | None) -> tuple[DatasetView, int]:
    """Return a dataset and a version of it that exists; the present one if none is asked for.

    Raises:
        NotFound: There is no such dataset, or it has no such version.
    """
    dataset = existing(await ledger.find_dataset(connection, tenant_id, name), "dataset", name)
    if version is not None and version > dataset.version:
        raise missing("dataset_version", str(version), f"{name!r} has {dataset.version} versions.")
    return dataset, dataset.version if version is None else version


async def _locked(transaction: Connection, tenant_id: str, name: str) -> DatasetView:
    return existing(await ledger.find_dataset(transaction, tenant_id, name, lock=True), "dataset", name)


def _checked(at: int, given: ExampleGive, shares: Shares | None, redactor: ExampleRedactor) -> NewExample:
    try:
        return given_example(given, shares, redactor)
    except TooLarge as error:
        raise InvalidInput(f"examples.{at}: {error}.", field=f"examples.{at}", status=422) from error


def _refuse_repeated(examples: Sequence[NewExample]) -> None:
    first: dict[str, int] = {}
    for at, one in enumerate(examples):
        if first.setdefault(one.key, at) != at and examples[first[one.key]].digest != one.digest:
            raise InvalidInput(
                f"examples.{at}: its key {one.key!r} is that of examples.{first[one.key]}. Give each a key of its own.",
                field=f"examples.{at}.key",
                status=422,
            )


async def _take(
    connection: Connection, tenant_id: str, source: SourceRun, taking: ExamplesFromRuns, redactor: ExampleRedactor
) -> tuple[NewExample, bool]:
    turns = ()
    if taking.context and source.parent_turn_id is not None:
        turns = await load_history_turns(connection, tenant_id, source.parent_turn_id)
    return taken_example(source, [turn.messages for turn in turns], taking, redactor)


async def _add(
    transaction: Connection, tenant_id: str, dataset: DatasetView, examples: Sequence[NewExample]
) -> ExamplesAdded:
    by_key = {one.key: one for one in examples}
    there = await ledger.current_digests(transaction, tenant_id, dataset.id, list(by_key))
    new = [one for one in by_key.values() if there.get(one.key) != one.digest]
    replaced = [one.key for one in new if one.key in there]
    done = ExamplesAdded(
        version=dataset.version,
        added=len(new) - len(replaced),
        replaced=len(replaced),
        unchanged=len(examples) - len(new),
    )
    if not new:
        return done
    current, kept = await ledger.count_examples(transaction, tenant_id, dataset.id)
    if current + done.added > MAX_EXAMPLES:
        raise too_many(MAX_EXAMPLES, f"examples of {dataset.name!r}", "Remove some, or begin another dataset.")
    if kept + len(new) > MAX_KEPT_EXAMPLES:
        raise too_many(
            MAX_KEPT_EXAMPLES, f"examples of all versions of {dataset.name!r}", "Export it into another dataset."
        )
    version = await ledger.raise_version(transaction, tenant_id, dataset.id)
    if replaced:
        await ledger.remove_examples(transaction, tenant_id, dataset.id, version, replaced)
    await ledger.add_examples(transaction, tenant_id, dataset.id, version, new)
    return done.model_copy(update={"version": version})


def _filter(selection: RunSelection) -> RunFilter:
    which = RunFilter(
        thread_id=selection.thread_id,
        agent_id=selection.agent_id,
        agent_version=selection.agent_version,
        statuses=_ENDED if selection.status is None else frozenset({selection.status}),
        since=selection.since,
        until=selection.until,
        tag=selection.tag,
        rated=selection.rated,
        tool=selection.tool,
        text=selection.text,
        evaluations=False,
    )
    return which if selection.run_ids is None else replace(which, run_ids=selection.run_ids)
