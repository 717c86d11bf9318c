# Generated from nova_workers/client/resources/triggers.py by `make format`: change that file instead.
"""``/v1/triggers`` of the client."""

from nova_workers.base.vocabulary import TriggerKind
from nova_workers.client.headers import idempotency
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.triggers import (
    SchedulePreview,
    TriggerCreate,
    TriggerFiringView,
    TriggerPatch,
    TriggerPreview,
    TriggerView,
)


class Triggers:
    """``/v1/triggers``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, agent_id: str | None = None, paused: bool = False, limit: int | None = None, cursor: str | None = None
    ) -> Page[TriggerView]:
        """Return a page of triggers, newest first; with `paused` only those that paused after failures."""
        return self._transport.fetch(
            Page[TriggerView],
            "GET",
            "/v1/triggers",
            params={"agent_id": agent_id, "paused": paused or None, "limit": limit, "cursor": cursor},
        )

    def get(self, trigger_id: str) -> TriggerView:
        """Return a trigger."""
        return self._transport.fetch(TriggerView, "GET", f"/v1/triggers/{trigger_id}")

    def create(self, trigger: TriggerCreate, *, idempotency_key: str | None = None) -> TriggerView:
        """Create a trigger, with an Idempotency-Key, generated unless given."""
        return self._transport.fetch(
            TriggerView, "POST", "/v1/triggers", body=trigger, headers=idempotency(idempotency_key)
        )

    def patch(self, trigger_id: str, change: TriggerPatch) -> TriggerView:
        """Change the fields that `change` sets."""
        return self._transport.fetch(TriggerView, "PATCH", f"/v1/triggers/{trigger_id}", body=change)

    def delete(self, trigger_id: str) -> None:
        """Delete a trigger; later requests for it raise `Gone`."""
        self._transport.send("DELETE", f"/v1/triggers/{trigger_id}")

    def preview_schedule(
        self, *, kind: TriggerKind, schedule: str, timezone: str | None = None, count: int | None = None
    ) -> SchedulePreview:
        """Return the next times of a schedule that no trigger has yet."""
        return self._transport.fetch(
            SchedulePreview,
            "GET",
            "/v1/triggers/preview",
            params={"kind": kind, "schedule": schedule, "timezone": timezone, "count": count},
        )

    def preview(self, trigger_id: str, *, count: int | None = None) -> TriggerPreview:
        """Return the next times at which a trigger would fire if it were enabled."""
        return self._transport.fetch(
            TriggerPreview, "GET", f"/v1/triggers/{trigger_id}/preview", params={"count": count}
        )

    def resume(self, trigger_id: str) -> TriggerView:
        """End a trigger's pause."""
        return self._transport.fetch(TriggerView, "POST", f"/v1/triggers/{trigger_id}/resume")

    def fire(self, trigger_id: str, *, idempotency_key: str | None = None) -> TriggerFiringView:
        """Fire a trigger now, with an Idempotency-Key, generated unless given, so that a retry fires no second time."""
        return self._transport.fetch(
            TriggerFiringView, "POST", f"/v1/triggers/{trigger_id}/fire", headers=idempotency(idempotency_key)
        )

    def firings(
        self, trigger_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TriggerFiringView]:
        """Return a page of the firings of a trigger's occurrences, the latest first."""
        return self._transport.fetch(
            Page[TriggerFiringView],
            "GET",
            f"/v1/triggers/{trigger_id}/firings",
            params={"limit": limit, "cursor": cursor},
        )
