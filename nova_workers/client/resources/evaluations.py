# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/evaluations`` of the client."""

from nova_workers.client.headers import idempotency
from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.evaluations import EvaluationStart, EvaluationStarted, EvaluationView, TrialView


class Evaluations:
    """``/v1/evaluations``: versions of an agent that answer the examples of a dataset."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def start(self, evaluation: EvaluationStart, *, idempotency_key: str | None = None) -> EvaluationStarted:
        """Start an evaluation, or only estimate it."""
        return await self._transport.fetch(
            EvaluationStarted, "POST", "/v1/evaluations", body=evaluation, headers=idempotency(idempotency_key)
        )

    async def list(
        self,
        *,
        agent_id: str | None = None,
        dataset: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[EvaluationView]:
        """Return a page of evaluations, newest first."""
        return await self._transport.fetch(
            Page[EvaluationView],
            "GET",
            "/v1/evaluations",
            params={"agent_id": agent_id, "dataset": dataset, "limit": limit, "cursor": cursor},
        )

    async def get(self, evaluation_id: str) -> EvaluationView:
        """Return an evaluation, with its result once it has ended."""
        return await self._transport.fetch(EvaluationView, "GET", f"/v1/evaluations/{evaluation_id}")

    async def trials(
        self, evaluation_id: str, *, key: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TrialView]:
        """Return a page of the answers of an evaluation, with their verdicts; with `key` only those to one example."""
        return await self._transport.fetch(
            Page[TrialView],
            "GET",
            f"/v1/evaluations/{evaluation_id}/trials",
            params={"key": key, "limit": limit, "cursor": cursor},
        )

    async def cancel(self, evaluation_id: str) -> EvaluationView:
        """Cancel an evaluation and its runs; its result has what was judged."""
        return await self._transport.fetch(
            EvaluationView, "POST", f"/v1/evaluations/{evaluation_id}/cancel", repeatable=True
        )

    async def delete(self, evaluation_id: str) -> None:
        """Delete an evaluation that has ended, with its answers."""
        await self._transport.send("DELETE", f"/v1/evaluations/{evaluation_id}")
