# Generated from nova_workers/client/resources/fleet.py by `make format`: change that file instead.
"""``/v1/fleet``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.http.doors import DoorsView
from nova_workers.contracts.http.fleet import (
    FleetPause,
    FleetTop,
    FleetView,
    ProvidersClear,
    ProvidersCleared,
    ProvidersView,
    QueuedView,
    WorkerDrain,
)


class Fleet:
    """``/v1/fleet``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def view(self) -> FleetView:
        """Return runs by status, queues, workers and pauses."""
        return self._transport.fetch(FleetView, "GET", "/v1/fleet")

    def top(self) -> FleetTop:
        """Return the fleet, the runs that run longest, and what ended in the last minute."""
        return self._transport.fetch(FleetTop, "GET", "/v1/fleet/top")

    def queued(self) -> QueuedView:
        """Return why queued runs wait."""
        return self._transport.fetch(QueuedView, "GET", "/v1/fleet/queued")

    def doors(self) -> DoorsView:
        """Return the API's address for clients, and the protocols that it speaks."""
        return self._transport.fetch(DoorsView, "GET", "/v1/fleet/doors")

    def pause(self, pause: FleetPause) -> FleetView:
        """Stop new claims in the scope. Queued runs stay queued."""
        return self._transport.fetch(FleetView, "POST", "/v1/fleet/pause", body=pause)

    def resume(self, pause: FleetPause) -> FleetView:
        """Allow claims in the scope again."""
        return self._transport.fetch(FleetView, "POST", "/v1/fleet/resume", body=pause)

    def drain_worker(self, worker_id: str) -> WorkerDrain:
        """Let a worker requeue its runs and end; for operators. It begins within seconds."""
        return self._transport.fetch(WorkerDrain, "POST", f"/v1/fleet/workers/{worker_id}/drain")

    def providers(self) -> ProvidersView:
        """Return the keys of model providers that rest, and the models that fail; for operators."""
        return self._transport.fetch(ProvidersView, "GET", "/v1/fleet/providers")

    def clear_providers(self, name: str | None = None) -> ProvidersCleared:
        """Forget rests and failures of a provider, a model or a profile, or of all; for operators."""
        return self._transport.fetch(
            ProvidersCleared, "POST", "/v1/fleet/providers/clear", body=ProvidersClear(name=name)
        )
