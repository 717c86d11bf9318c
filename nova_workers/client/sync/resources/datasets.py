# Generated from nova_workers/client/resources/datasets.py by `make format`: change that file instead.
"""``/v1/datasets`` of the client."""

from collections.abc import Sequence

from nova_workers.client.headers import idempotency
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.datasets import (
    DatasetCreate,
    DatasetPatch,
    DatasetView,
    ExamplesAdd,
    ExamplesAdded,
    ExamplesFromRuns,
    ExampleView,
)


class Datasets:
    """``/v1/datasets``: examples by which versions of agents are compared."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, dataset: DatasetCreate, *, idempotency_key: str | None = None) -> DatasetView:
        """Create a dataset, without examples."""
        return self._transport.fetch(
            DatasetView, "POST", "/v1/datasets", body=dataset, headers=idempotency(idempotency_key)
        )

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[DatasetView]:
        """Return a page of datasets, by name."""
        return self._transport.fetch(
            Page[DatasetView], "GET", "/v1/datasets", params={"limit": limit, "cursor": cursor}
        )

    def get(self, dataset: str) -> DatasetView:
        """Return a dataset, without its examples."""
        return self._transport.fetch(DatasetView, "GET", f"/v1/datasets/{dataset}")

    def patch(self, dataset: str, change: DatasetPatch) -> DatasetView:
        """Change the fields that `change` sets."""
        return self._transport.fetch(DatasetView, "PATCH", f"/v1/datasets/{dataset}", body=change)

    def delete(self, dataset: str) -> None:
        """Delete a dataset with all versions of its examples."""
        self._transport.send("DELETE", f"/v1/datasets/{dataset}")

    def add(self, dataset: str, examples: ExamplesAdd) -> ExamplesAdded:
        """Add examples, all in one new version or none. Adding the same again changes nothing."""
        return self._transport.fetch(
            ExamplesAdded, "POST", f"/v1/datasets/{dataset}/examples", body=examples, repeatable=True
        )

    def take(self, dataset: str, taking: ExamplesFromRuns) -> ExamplesAdded:
        """Take examples from the newest ended runs that match."""
        return self._transport.fetch(
            ExamplesAdded, "POST", f"/v1/datasets/{dataset}/from-runs", body=taking, repeatable=True
        )

    def examples(
        self,
        dataset: str,
        *,
        version: int | None = None,
        split: str | None = None,
        tag: str | Sequence[str] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ExampleView]:
        """Return a page of the examples of a version, in the order in which they were added.

        Args:
            version: The present one by default.
            split: Only those of this split.
            tag: Only those with each of these tags.
        """
        return self._transport.fetch(
            Page[ExampleView],
            "GET",
            f"/v1/datasets/{dataset}/examples",
            params={"version": version, "split": split, "tag": tag, "limit": limit, "cursor": cursor},
        )

    def remove(self, dataset: str, key: str) -> None:
        """Remove an example from the next version. The versions before keep it."""
        self._transport.send("DELETE", f"/v1/datasets/{dataset}/examples/{key}")
