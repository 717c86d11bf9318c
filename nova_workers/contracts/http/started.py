"""An orchestration that was started."""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.contracts.http.orchestrations import OrchestrationView


@dataclass(frozen=True, slots=True)
class Started:
    """An orchestration that was started or continued, and its master's run.

    Attributes:
        replayed: It existed already, under the same idempotency key.
        view: As it was then; None if it was found rather than written.
    """

    orchestration_id: str
    master_id: str
    run_id: str
    replayed: bool = False
    view: OrchestrationView | None = None
