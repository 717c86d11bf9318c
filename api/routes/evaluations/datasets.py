"""``/v1/datasets``: examples by which versions of agents are compared."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.base.errors import InvalidInput, existing, missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.datasets import (
    DatasetCreate,
    DatasetPatch,
    DatasetView,
    ExampleGive,
    ExamplesAdd,
    ExamplesAdded,
    ExamplesFromRuns,
    ExampleView,
    Word,
)
from nova_workers.domain.datasets import sql as ledger
from nova_workers.domain.datasets.rules import service as datasets
from nova_workers.domain.idempotency.sql import name_made, once
from nova_workers.ledger.database import Connection

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import DatasetNamePath, ExampleKeyPath
from ...repeats import RepeatableRequest
from ...state import State
from ...submitting import content_of
from ..runs.past_messages import checked_messages

EXAMPLES_PATH = "/v1/datasets"


class _ExamplesRoute(StrictRoute):
    """A route that takes as many parts as many examples with conversations and calls of tools have."""

    max_parts = 250_000


examples = APIRouter(prefix=EXAMPLES_PATH, tags=["datasets"], route_class=_ExamplesRoute)
router = APIRouter(prefix=EXAMPLES_PATH, tags=["datasets"], route_class=StrictRoute)

_Version = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Those of this version; else the present one.")]
_Split = Annotated[Word | None, Query(description="Only those of this split.")]
_TagsQuery = Annotated[
    list[Word] | None, Query(alias="tag", max_length=20, description="Only those with this tag; may be repeated.")
]


@router.post("", status_code=201, responses=problems(409, body=True))
async def create_dataset(
    body: DatasetCreate, caller: RunsCaller, state: State, repeats: RepeatableRequest
) -> DatasetView:
    """Create a dataset, without examples."""
    key = repeats.bound_to(body)

    async def create(transaction: Connection) -> DatasetView:
        made = await datasets.create_dataset(transaction, caller.tenant_id, body)
        await name_made(transaction, caller.tenant_id, key, made.id)
        return made

    async def find(transaction: Connection) -> DatasetView:
        return existing(await ledger.find_dataset(transaction, caller.tenant_id, body.name), "dataset", body.name)

    async def write() -> tuple[DatasetView, bool]:
        async with state.services.database.transaction() as transaction:
            return await once(
                transaction, caller.tenant_id, key, lambda: create(transaction), lambda _: find(transaction)
            )

    return await repeats.once("the dataset", write)


@router.get("", responses=problems(400))
async def list_datasets(caller: RunsReader, state: State, paging: PageQuery) -> Page[DatasetView]:
    """List datasets by name."""
    listing = paging.of(caller.tenant_id, "datasets", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_datasets(connection, caller.tenant_id, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda one: one.name)


@router.get("/{dataset}", responses=problems(404))
async def get_dataset(dataset: DatasetNamePath, caller: RunsReader, state: State) -> DatasetView:
    """Get a dataset, without its examples."""
    async with state.services.database.connection() as connection:
        return existing(await ledger.find_dataset(connection, caller.tenant_id, dataset), "dataset", dataset)


@router.patch("/{dataset}", responses=problems(404, body=True))
async def patch_dataset(dataset: DatasetNamePath, body: DatasetPatch, caller: RunsCaller, state: State) -> DatasetView:
    """Change the given fields. Examples that are there stay as they are."""
    async with state.services.database.connection() as connection:
        return existing(await ledger.patch_dataset(connection, caller.tenant_id, dataset, body), "dataset", dataset)


@router.delete("/{dataset}", status_code=204, responses=problems(404))
async def delete_dataset(dataset: DatasetNamePath, caller: RunsCaller, state: State) -> None:
    """Delete a dataset with all versions of its examples."""
    async with state.services.database.connection() as connection:
        if not await ledger.delete_dataset(connection, caller.tenant_id, dataset):
            raise missing("dataset", dataset)


@examples.post("/{dataset}/examples", responses=problems(404, 409, body=True))
async def add_examples(dataset: DatasetNamePath, body: ExamplesAdd, caller: RunsCaller, state: State) -> ExamplesAdded:
    """Add examples, all in one new version or none. Adding the same again changes nothing."""
    max_chars = state.services.settings.api.max_message_chars
    await asyncio.to_thread(_check, body.examples, max_chars=max_chars, now=state.services.clock.now())
    async with state.services.database.transaction() as transaction:
        return await datasets.add_examples(transaction, caller.tenant_id, dataset, body)


@router.post("/{dataset}/from-runs", responses=problems(404, 409, 410, body=True))
async def take_examples(
    dataset: DatasetNamePath, body: ExamplesFromRuns, caller: RunsCaller, state: State
) -> ExamplesAdded:
    """Take examples from the newest ended runs that match: their message, what came before it, their tool calls."""
    async with state.services.database.transaction() as transaction:
        return await datasets.take_examples(transaction, caller.tenant_id, dataset, body)


@router.get("/{dataset}/examples", responses=problems(400, 404, 422))
async def list_examples(
    *,
    dataset: DatasetNamePath,
    caller: RunsReader,
    state: State,
    version: _Version = None,
    split: _Split = None,
    tags: _TagsQuery = None,
    paging: PageQuery,
) -> Page[ExampleView]:
    """List the examples of a version, in the order in which they were added."""
    words = sorted(set(tags or ()))
    listing = paging.of(caller.tenant_id, "examples", str, dataset, version, split, *words)
    async with state.services.database.connection() as connection:
        found, number = await datasets.version_of(connection, caller.tenant_id, dataset, version)
        rows = await ledger.list_examples(
            connection,
            caller.tenant_id,
            found.id,
            number,
            split=split,
            tags=words,
            after=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda one: one.id)


@router.delete("/{dataset}/examples/{key}", status_code=204, responses=problems(404))
async def remove_example(dataset: DatasetNamePath, key: ExampleKeyPath, caller: RunsCaller, state: State) -> None:
    """Remove an example from the next version. The versions before keep it."""
    async with state.services.database.transaction() as transaction:
        await datasets.remove_example(transaction, caller.tenant_id, dataset, key)


def _check(given: Sequence[ExampleGive], *, max_chars: int, now: datetime) -> None:
    """Refuse what a thread would not take: the message, and the conversation before it."""
    for at, example in enumerate(given):
        try:
            content_of(example.input, max_chars=max_chars)
            checked_messages(example.context, max_chars=max_chars, now=now)
        except InvalidInput as error:
            raise InvalidInput(f"examples.{at}: {error}", field=f"examples.{at}", status=422) from error
