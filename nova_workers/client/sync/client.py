# Generated from nova_workers/client/client.py by `make format`: change that file instead.
"""The typed client of the HTTP API.

Every method is one endpoint; it takes and returns the bodies of `nova_workers.contracts` and raises the
errors of `nova_workers.base.errors`:

    with SyncNovaClient("http://127.0.0.1:8700", key) as nova:
        run = nova.runs.create(RunCreate(message="Hello"), thread_id=thread.id)
        for cursor, event in nova.runs.events(run.id):
            ...
"""

from copy import copy
from typing import Any, Self

from pydantic import BaseModel

from nova_workers.base.errors import Unavailable
from nova_workers.base.ids import new_id
from nova_workers.client.retry import Retry
from nova_workers.client.sync.resources.agents import Agents
from nova_workers.client.sync.resources.archive import Archives
from nova_workers.client.sync.resources.audit import AuditLog
from nova_workers.client.sync.resources.deliveries import Deliveries, Files
from nova_workers.client.sync.resources.memories import History, Memories
from nova_workers.client.sync.resources.notes import Notes
from nova_workers.client.sync.resources.orchestration_config import OrchestrationConfigs, OrchestrationModels
from nova_workers.client.sync.resources.orchestrations import Orchestrations
from nova_workers.client.sync.resources.overview import Overview
from nova_workers.client.sync.resources.runs import Runs
from nova_workers.client.sync.resources.secrets import Secrets
from nova_workers.client.sync.resources.skills import Skills
from nova_workers.client.sync.resources.tasks import Tasks
from nova_workers.client.sync.resources.tenants import Tenants
from nova_workers.client.sync.resources.triggers import Triggers
from nova_workers.client.sync.resources.usage import UsageReports
from nova_workers.client.sync.resources.webhooks import Webhooks
from nova_workers.client.sync.resources.work_orders import WorkOrderPolicies, WorkOrders, WorkOrderSecrets
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.fleet import (
    FleetPause,
    FleetView,
    ProvidersClear,
    ProvidersCleared,
    ProvidersView,
    QueuedView,
)
from nova_workers.contracts.http.keys import KeyCreate, KeyCreated, KeyIdentity, KeyView, SignIn, SignInCreate
from nova_workers.contracts.http.leases import LeaseRequest, LeaseView
from nova_workers.contracts.http.overview.forks import ForkTreeView
from nova_workers.contracts.http.wire import (
    MessageView,
    RestoredContent,
    RunView,
    ThreadCreate,
    ThreadFork,
    ThreadPatch,
    ThreadView,
    TurnView,
)

__all__ = ["Agents", "Fleet", "Keys", "Leases", "SyncNovaClient", "Threads"]


_IMPORT_S = 120.0
"""For the answer to an import of messages."""


class _Readiness(BaseModel):
    ready: bool
    checks: dict[str, str]


class SyncNovaClient:
    """A connection to one fleet with one key. Close it, or use it as a context manager.

    Args:
        base_url: The API's address, such as ``http://127.0.0.1:8700``.
        api_key: The bearer key; None sends none.
        timeout_s: Longest silence of the server in an ordinary request.
        retry: How often requests are repeated after dropped connections.
    """

    def __init__(
        self, base_url: str, api_key: str | None, *, timeout_s: float = 30.0, retry: Retry | None = None
    ) -> None:
        self._connect(Transport(base_url, api_key, timeout_s=timeout_s, retry=retry))

    def with_key(self, api_key: str, *, forwarded_for: str | None = None, session_id: str | None = None) -> Self:
        """Return a client with another key on the same connections. Closing either one closes both.

        Args:
            api_key: The key.
            forwarded_for: The address for which a server sends the requests, as a proxy does. The API believes it where
                ``NOVA_API__TRUSTED_PROXIES`` names that server.
            session_id: The session of a person: once it has ended, the API refuses the requests.

        Raises:
            Unauthenticated: No key has this form.
        """
        other = copy(self)
        other._connect(self._transport.with_key(api_key, forwarded_for=forwarded_for, session_id=session_id))
        return other

    def _connect(self, transport: Transport) -> None:
        self._transport = transport
        self.base_url = transport.base_url
        self.agents = Agents(transport)
        self.threads = Threads(transport)
        self.runs = Runs(transport)
        self.secrets = Secrets(transport)
        self.tasks = Tasks(transport)
        self.keys = Keys(transport)
        self.audit = AuditLog(transport)
        self.leases = Leases(transport)
        self.history = History(transport)
        self.memories = Memories(transport)
        self.notes = Notes(transport)
        self.files = Files(transport)
        self.deliveries = Deliveries(transport)
        self.fleet = Fleet(transport)
        self.usage = UsageReports(transport)
        self.overview = Overview(self._transport)
        self.orchestrations = Orchestrations(transport)
        self.orchestration_config = OrchestrationConfigs(transport)
        self.orchestration_models = OrchestrationModels(transport)
        self.tenants = Tenants(transport)
        self.archives = Archives(transport)
        self.skills = Skills(transport)
        self.triggers = Triggers(transport)
        self.webhooks = Webhooks(transport)
        self.work_orders = WorkOrders(transport)
        self.work_order_policies = WorkOrderPolicies(transport)
        self.work_order_secrets = WorkOrderSecrets(transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()

    def capabilities(self) -> list[dict[str, Any]]:
        """Return the capabilities of this fleet: name, description, tools and schema of each."""
        return (self._transport.fetch(Page[dict[str, Any]], "GET", "/v1/capabilities")).items

    def whoami(self) -> KeyIdentity:
        """Return the client's key: its name, scopes and expiry, and its tenant.

        Raises:
            Unauthenticated: The key is unknown, revoked or expired.
        """
        return self._transport.fetch(KeyIdentity, "GET", "/v1/whoami")

    def sign_in(self, *, idle_s: int) -> SignIn:
        """Begin a session of a person with the client's key, which ends after `idle_s` without a request.

        Raises:
            Unauthenticated: The key is unknown, revoked or expired.
        """
        return self._transport.fetch(SignIn, "POST", "/v1/sign-ins", body=SignInCreate(idle_s=idle_s))

    def sign_out(self, session_id: str) -> None:
        """End a session of the client's key; `NotFound` if it has ended."""
        self._transport.send("DELETE", f"/v1/sign-ins/{session_id}")

    def healthz(self) -> None:
        """Return if the API process answers; raise `Unavailable` otherwise."""
        self._transport.send("GET", "/healthz", timeout_s=5)

    def checks(self) -> dict[str, str]:
        """Return the API's checks of its servers, by name: ``ok`` or the fault."""
        return (self._readiness()).checks

    def readyz(self) -> dict[str, str]:
        """Return the API's checks of its servers, all of which succeeded.

        Raises:
            Unavailable: The API is not ready; the message says why.
        """
        state = self._readiness()
        if not state.ready:
            wrong = "; ".join(f"{name} {words}" for name, words in state.checks.items() if words != "ok")
            raise Unavailable(f"The API at {self.base_url} is not ready: {wrong}.", **state.checks)
        return state.checks

    def _readiness(self) -> _Readiness:
        response = self._transport.send("GET", "/readyz", timeout_s=10, accept=frozenset({503}))
        return _Readiness.model_validate_json(response.content)


class Threads:
    """``/v1/threads``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        agent_id: str | None = None,
        label: str | None = None,
        forked_from: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ThreadView]:
        """Return a page of threads, newest first; with `forked_from` only forks of that thread."""
        return self._transport.fetch(
            Page[ThreadView],
            "GET",
            "/v1/threads",
            params={"agent_id": agent_id, "label": label, "forked_from": forked_from, "limit": limit, "cursor": cursor},
        )

    def get(self, thread_id: str) -> ThreadView:
        """Return a thread."""
        return self._transport.fetch(ThreadView, "GET", f"/v1/threads/{thread_id}")

    def create(self, thread: ThreadCreate, *, idempotency_key: str | None = None) -> ThreadView:
        """Create a thread: empty, or with the messages of a conversation that took place elsewhere.

        Args:
            thread: The thread.
            idempotency_key: Identifies this request; repeating it returns the first thread. One is generated if it is
                omitted.
        """
        return self._transport.fetch(
            ThreadView,
            "POST",
            "/v1/threads",
            body=thread,
            headers={"Idempotency-Key": idempotency_key or new_id("evt")},
            timeout_s=_IMPORT_S if thread.messages else None,
        )

    def patch(self, thread_id: str, change: ThreadPatch) -> ThreadView:
        """Change the fields that `change` sets."""
        return self._transport.fetch(ThreadView, "PATCH", f"/v1/threads/{thread_id}", body=change)

    def delete(self, thread_id: str) -> None:
        """Delete a thread; later requests for it raise `Gone`."""
        self._transport.send("DELETE", f"/v1/threads/{thread_id}")

    def fork(self, thread_id: str, fork: ThreadFork) -> ThreadView:
        """Create a thread that continues from a turn of this one."""
        return self._transport.fetch(ThreadView, "POST", f"/v1/threads/{thread_id}/fork", body=fork)

    def forks(self, thread_id: str) -> ForkTreeView:
        """Return the threads that were forked from each other and of which this is one."""
        return self._transport.fetch(ForkTreeView, "GET", f"/v1/threads/{thread_id}/forks")

    def messages(
        self,
        thread_id: str,
        *,
        from_depth: int | None = None,
        to_depth: int | None = None,
        after: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[MessageView]:
        """Return a page of the conversation, oldest first; of the turns from one depth to another, after a message."""
        return self._transport.fetch(
            Page[MessageView],
            "GET",
            f"/v1/threads/{thread_id}/messages",
            params={"from_depth": from_depth, "to_depth": to_depth, "after": after, "limit": limit, "cursor": cursor},
        )

    def turns(
        self, thread_id: str, *, to_depth: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[TurnView]:
        """Return a page of the thread's turns, newest first, from a depth on."""
        return self._transport.fetch(
            Page[TurnView],
            "GET",
            f"/v1/threads/{thread_id}/turns",
            params={"to_depth": to_depth, "limit": limit, "cursor": cursor},
        )

    def restore_content(self, thread_id: str, turn_id: str) -> RestoredContent:
        """Give the model again what was left out of the conversation in a turn, from the next turn on."""
        return self._transport.fetch(
            RestoredContent, "POST", f"/v1/threads/{thread_id}/turns/{turn_id}/restore", repeatable=True
        )

    def runs(
        self, thread_id: str, *, media: bool = True, limit: int | None = None, cursor: str | None = None
    ) -> Page[RunView]:
        """Return a page of the thread's runs; without `media`, images and documents have no base64 data."""
        return self._transport.fetch(
            Page[RunView],
            "GET",
            f"/v1/threads/{thread_id}/runs",
            params={"media": None if media else "false", "limit": limit, "cursor": cursor},
        )


class Keys:
    """``/v1/keys``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[KeyView]:
        """Return a page of the tenant's keys, without their secrets."""
        return self._transport.fetch(Page[KeyView], "GET", "/v1/keys", params={"limit": limit, "cursor": cursor})

    def create(self, key: KeyCreate) -> KeyCreated:
        """Create a key. Its secret is in this answer only."""
        return self._transport.fetch(KeyCreated, "POST", "/v1/keys", body=key)

    def revoke(self, key_id: str) -> None:
        """Revoke a key. API processes refuse it within seconds."""
        self._transport.send("DELETE", f"/v1/keys/{key_id}")


class Fleet:
    """``/v1/fleet``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def view(self) -> FleetView:
        """Return runs by status, queues, workers and pauses."""
        return self._transport.fetch(FleetView, "GET", "/v1/fleet")

    def queued(self) -> QueuedView:
        """Return why queued runs wait."""
        return self._transport.fetch(QueuedView, "GET", "/v1/fleet/queued")

    def pause(self, pause: FleetPause) -> FleetView:
        """Stop new claims in the scope. Queued runs stay queued."""
        return self._transport.fetch(FleetView, "POST", "/v1/fleet/pause", body=pause)

    def resume(self, pause: FleetPause) -> FleetView:
        """Allow claims in the scope again."""
        return self._transport.fetch(FleetView, "POST", "/v1/fleet/resume", body=pause)

    def providers(self) -> ProvidersView:
        """Return the keys of model providers that rest, and the models that fail; for operators."""
        return self._transport.fetch(ProvidersView, "GET", "/v1/fleet/providers")

    def clear_providers(self, name: str | None = None) -> ProvidersCleared:
        """Forget rests and failures of a provider, a model or a profile, or of all; for operators."""
        return self._transport.fetch(
            ProvidersCleared, "POST", "/v1/fleet/providers/clear", body=ProvidersClear(name=name)
        )


class Leases:
    """``/v1/leases``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def put(self, name: str, request: LeaseRequest) -> LeaseView:
        """Acquire a lease, or with its token renew or release it; `Conflict` if another process has it."""
        return self._transport.fetch(LeaseView, "PUT", f"/v1/leases/{name}", body=request)
