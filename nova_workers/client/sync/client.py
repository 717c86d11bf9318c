# Generated from nova_workers/client/client.py by `make format`: change that file instead.
"""The typed client of the HTTP API.

Every method is one endpoint; it takes and returns the bodies of `nova_workers.contracts` and raises the
errors of `nova_workers.base.errors`:

    with SyncNovaClient("http://127.0.0.1:8700", key) as nova:
        run = nova.runs.create(RunCreate(message="Hello"), thread_id=thread.id)
        for cursor, event in nova.runs.events(run.id):
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from nova_workers.base.errors import Unavailable
from nova_workers.client.on_demand import CallGroup
from nova_workers.client.retry import Retry
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.keys import (
    KeyIdentity,
    PersonSignIn,
    PersonSignInCreate,
    SignIn,
    SignInCreate,
    SingleSignOnView,
)

if TYPE_CHECKING:
    from nova_workers.client.sync.resources.agents import Agents
    from nova_workers.client.sync.resources.archive import Archives
    from nova_workers.client.sync.resources.audit import AuditLog
    from nova_workers.client.sync.resources.changes import Changes
    from nova_workers.client.sync.resources.datasets import Datasets
    from nova_workers.client.sync.resources.deliveries import Deliveries, Files
    from nova_workers.client.sync.resources.evaluations import Evaluations
    from nova_workers.client.sync.resources.feedback import FeedbackCalls
    from nova_workers.client.sync.resources.fleet import Fleet
    from nova_workers.client.sync.resources.inbound_channels import InboundChannels
    from nova_workers.client.sync.resources.keys import Keys
    from nova_workers.client.sync.resources.leases import Leases
    from nova_workers.client.sync.resources.memories import History, Memories
    from nova_workers.client.sync.resources.notes import Notes
    from nova_workers.client.sync.resources.orchestration_config import OrchestrationConfigs, OrchestrationModels
    from nova_workers.client.sync.resources.orchestrations import Orchestrations
    from nova_workers.client.sync.resources.order_policies import WorkOrderPolicies
    from nova_workers.client.sync.resources.order_secrets import WorkOrderSecrets
    from nova_workers.client.sync.resources.overview import Overview
    from nova_workers.client.sync.resources.pairings import Pairings
    from nova_workers.client.sync.resources.projects import Projects
    from nova_workers.client.sync.resources.rollouts import Rollouts
    from nova_workers.client.sync.resources.run_lists import RunLists
    from nova_workers.client.sync.resources.runs import Runs
    from nova_workers.client.sync.resources.sampling import Sampling
    from nova_workers.client.sync.resources.secrets import Secrets
    from nova_workers.client.sync.resources.skills import Skills
    from nova_workers.client.sync.resources.tasks import Tasks
    from nova_workers.client.sync.resources.tenants import Tenants
    from nova_workers.client.sync.resources.threads import Threads
    from nova_workers.client.sync.resources.triggers import Triggers
    from nova_workers.client.sync.resources.usage import UsageReports
    from nova_workers.client.sync.resources.webhooks import Webhooks
    from nova_workers.client.sync.resources.work_orders import WorkOrders


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

    agents: CallGroup[Agents] = CallGroup("agents", "Agents")
    threads: CallGroup[Threads] = CallGroup("threads", "Threads")
    runs: CallGroup[Runs] = CallGroup("runs", "Runs")
    run_lists: CallGroup[RunLists] = CallGroup("run_lists", "RunLists")
    datasets: CallGroup[Datasets] = CallGroup("datasets", "Datasets")
    evaluations: CallGroup[Evaluations] = CallGroup("evaluations", "Evaluations")
    secrets: CallGroup[Secrets] = CallGroup("secrets", "Secrets")
    tasks: CallGroup[Tasks] = CallGroup("tasks", "Tasks")
    keys: CallGroup[Keys] = CallGroup("keys", "Keys")
    audit: CallGroup[AuditLog] = CallGroup("audit", "AuditLog")
    inbound_channels: CallGroup[InboundChannels] = CallGroup("inbound_channels", "InboundChannels")
    leases: CallGroup[Leases] = CallGroup("leases", "Leases")
    pairings: CallGroup[Pairings] = CallGroup("pairings", "Pairings")
    history: CallGroup[History] = CallGroup("memories", "History")
    memories: CallGroup[Memories] = CallGroup("memories", "Memories")
    notes: CallGroup[Notes] = CallGroup("notes", "Notes")
    files: CallGroup[Files] = CallGroup("deliveries", "Files")
    deliveries: CallGroup[Deliveries] = CallGroup("deliveries", "Deliveries")
    feedback: CallGroup[FeedbackCalls] = CallGroup("feedback", "FeedbackCalls")
    fleet: CallGroup[Fleet] = CallGroup("fleet", "Fleet")
    usage: CallGroup[UsageReports] = CallGroup("usage", "UsageReports")
    overview: CallGroup[Overview] = CallGroup("overview", "Overview")
    changes: CallGroup[Changes] = CallGroup("changes", "Changes")
    orchestrations: CallGroup[Orchestrations] = CallGroup("orchestrations", "Orchestrations")
    orchestration_config: CallGroup[OrchestrationConfigs] = CallGroup("orchestration_config", "OrchestrationConfigs")
    orchestration_models: CallGroup[OrchestrationModels] = CallGroup("orchestration_config", "OrchestrationModels")
    tenants: CallGroup[Tenants] = CallGroup("tenants", "Tenants")
    archives: CallGroup[Archives] = CallGroup("archive", "Archives")
    projects: CallGroup[Projects] = CallGroup("projects", "Projects")
    rollouts: CallGroup[Rollouts] = CallGroup("rollouts", "Rollouts")
    sampling: CallGroup[Sampling] = CallGroup("sampling", "Sampling")
    skills: CallGroup[Skills] = CallGroup("skills", "Skills")
    triggers: CallGroup[Triggers] = CallGroup("triggers", "Triggers")
    webhooks: CallGroup[Webhooks] = CallGroup("webhooks", "Webhooks")
    work_orders: CallGroup[WorkOrders] = CallGroup("work_orders", "WorkOrders")
    work_order_policies: CallGroup[WorkOrderPolicies] = CallGroup("order_policies", "WorkOrderPolicies")
    work_order_secrets: CallGroup[WorkOrderSecrets] = CallGroup("order_secrets", "WorkOrderSecrets")

    def __init__(
        self, base_url: str, api_key: str | None, *, timeout_s: float = 30.0, retry: Retry | None = None
    ) -> None:
        self._connect(Transport(base_url, api_key, timeout_s=timeout_s, retry=retry))

    def with_key(self, api_key: str | None, *, forwarded_for: str | None = None, session_id: str | None = None) -> Self:
        """Return a client with another key on the same connections. Closing either one closes both.

        Args:
            forwarded_for: The address for which a server sends the requests, as a proxy does. The API believes it where
                ``NOVA_API__TRUSTED_PROXIES`` names that server.
            session_id: The session of a person: once it has ended, the API refuses the requests.

        Raises:
            Unauthenticated: No key has this form.
        """
        other = object.__new__(type(self))
        other._connect(self._transport.with_key(api_key, forwarded_for=forwarded_for, session_id=session_id))
        return other

    def _connect(self, transport: Transport) -> None:
        self._transport = transport
        self.base_url = transport.base_url

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

    def single_sign_on(self) -> SingleSignOnView:
        """Return the fleet's provider of single sign-on. The client needs no key for it.

        Raises:
            NotFound: The fleet has no single sign-on.
        """
        return self._transport.fetch(SingleSignOnView, "GET", "/sso")

    def sign_in_person(
        self, id_token: str, *, nonce: str | None, idle_s: int, tenant_id: str | None = None
    ) -> PersonSignIn:
        """Begin a session of a person by an ID token of the fleet's single sign-on. The client needs no key for it.

        Raises:
            Unauthenticated: The token is not valid.
            Forbidden: The person has no role here, or none in that tenant.
            TenantChoice: The person has roles in several tenants, which the error names, and `tenant_id` is None.
            NotFound: The fleet has no single sign-on.
        """
        body = PersonSignInCreate(id_token=id_token, nonce=nonce, idle_s=idle_s, tenant_id=tenant_id)
        return self._transport.fetch(PersonSignIn, "POST", "/sso/sign-ins", body=body)

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
