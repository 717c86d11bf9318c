"""The HTTP contract of the fleet: its queues, workers and pauses."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from nova_workers.base.vocabulary import OutageReason, PauseScope, ProviderState, QueuedReason, RestReason, RunQueue
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.installs import InstalledCode


class QueueDepth(View):
    """The queued runs of one queue."""

    queue: str
    queued: int
    oldest_queued_age_s: float | None


MAX_QUEUED_COUNTED = 5_000
"""Of how many queued runs, the oldest, the reasons are counted."""


class QueuedGroup(View):
    """Queued runs of one queue that wait for the same reason."""

    queue: RunQueue
    reason: QueuedReason
    runs: int
    oldest_age_s: float
    """Since the run that is queued longest of these was queued."""


class QueuedView(View):
    """Why queued runs wait: of the key's tenant, or of all with the `operator` scope."""

    groups: list[QueuedGroup]
    """The largest first. Of at most the 5,000 oldest queued runs."""


class SandboxTrial(View):
    """What a command reached in a worker's sandbox at the worker's start, run as those of tenants with ceilings are."""

    user: int | None = None
    """The user that it had."""
    reached: list[str] = Field(default_factory=list[str])
    """What it reached and must not. A sandbox with any of these is not used."""
    limits: dict[str, int] = Field(default_factory=dict[str, int])
    """Most that each process of it may use: `memory_bytes`, `open_files`, `file_bytes`; `processes` of its user; and
    `oom_score_adj`, by which the kernel chooses what to end when memory runs short."""
    cgroup: bool = False
    """Whether a cgroup bounds the memory and the number of its processes together."""
    egress: list[str] = Field(default_factory=list[str])
    """What a tenant's `egress` can be there. Where `proxy` is missing, its commands have no network in place of it."""
    landlock: int = 0
    """The version of Landlock that stands beside the sandbox or is it; 0 is none."""
    missing: list[str] = Field(default_factory=list[str])
    """Features of the machine's kernel, and programs, with which the sandbox would be stronger."""
    why_none: str | None = None
    """Why there is no sandbox."""


class WorkerView(View):
    """A live worker process."""

    id: str
    host: str
    pid: int
    node: str | None = None
    """Its name in Celery and Flower."""
    queues: list[str]
    slots: int
    busy: int
    suspects: int = 0
    """Suspect runs that it executes in processes of their own, which are not among the busy slots."""
    draining: bool
    sandbox: str | None = None
    """What confines commands there: ``bubblewrap``, ``namespaces`` or ``landlock``; null is nothing."""
    sandbox_trial: SandboxTrial | None = None
    """What a command reaches in it; null for workers of an earlier release."""
    warnings: list[str] = Field(default_factory=list[str])
    """What an operator should change on its machine: a full disk, files of agents that end with a container."""
    projects: list[InstalledCode] = Field(default_factory=list[InstalledCode])
    """Projects and packages with tools and agents in Python that it has."""
    drain_ordered_at: datetime | None = None
    """When an operator ordered it to drain. It is `draining` within seconds."""
    seen_at: datetime

    @property
    def takes_runs(self) -> bool:
        """Whether it begins new runs."""
        return not self.draining and self.drain_ordered_at is None


def served_by_none_but(worker: WorkerView, workers: Sequence[WorkerView]) -> list[str]:
    """Return the queues whose runs wait once a worker drains, since no other one takes them."""
    others = {queue for each in workers if each.id != worker.id and each.takes_runs for queue in each.queues}
    return [queue for queue in worker.queues if queue not in others]


class WorkerDrain(View):
    """An order of an operator that a worker drains."""

    worker_id: str
    ordered_at: datetime
    ended_at: datetime | None
    """When its process ended. Null: it has not yet, or it could not record it."""

    @property
    def worker(self) -> str:
        """The host and process of the worker, by which people know it."""
        return self.worker_id.rpartition("@")[2]


class HeldRuns(View):
    """Queued runs that are held by one outage of a model provider."""

    provider: str
    outage: OutageReason
    profile: str | None
    """The credential profile of the workers, if it is about one."""
    model: str | None
    """The model, if only this one is affected."""
    message: str
    """What the provider answered last."""
    advice: str
    """What an operator can do."""
    runs: int
    since: datetime
    next_try_at: datetime | None
    """Null: as soon as a worker with a key is free."""


class SwitchView(View):
    """A pause in force."""

    scope: PauseScope
    target: str | None
    reason: str | None
    created_at: datetime


class FleetPause(Body):
    """What to pause or resume. `fleet` needs the `operator` scope; `agent` takes the agent's id."""

    scope: PauseScope = "tenant"
    agent_id: AgentId | None = None
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


class FleetView(View):
    """An overview of the fleet. Counts are of the key's tenant, or of all tenants with the `operator` scope."""

    runs: dict[str, int]
    """Open runs by status, and those that ended in the last hour."""
    queues: list[QueueDepth]
    workers: list[WorkerView] | None
    """Null without the scope `operator`: workers serve all tenants. Empty while Redis does not answer."""
    drained: list[WorkerDrain] = Field(default_factory=list[WorkerDrain])
    """Workers that ended in the last hour, as an operator had ordered, the last ordered first. Empty for other keys."""
    redis_answers: bool = True
    """Whether Redis answers. While it does not, messages are accepted, and start when it is back."""
    switches: list[SwitchView]
    held: list[HeldRuns] = Field(default_factory=list[HeldRuns])
    """Queued runs whose model provider cannot be used, by outage."""


class LongRun(View):
    """A run that a worker executes."""

    run_id: str
    thread_id: str
    agent_id: str
    queue: str
    attempt: int
    elapsed_s: float
    """Since its first attempt began, with its waits."""


class LastMinute(View):
    """The runs that ended in the last minute, and what they used."""

    ended: int
    failed: int
    """How many of them failed."""
    input_tokens: int
    """Read by models, from their prompt caches too."""
    output_tokens: int
    cost_usd: float
    """The cost of the models whose price is known."""


class FleetTop(View):
    """The fleet at a moment. As in `FleetView`, of the key's tenant, or of all with the `operator` scope."""

    at: datetime
    fleet: FleetView
    longest: list[LongRun]
    """The ten running runs that began first."""
    last_minute: LastMinute


class ProviderRest(View):
    """A key of a model provider that rests, or a model that failed conversations."""

    provider: str
    """The engine's provider, under whose name workers share what they learn."""
    model: str | None
    """Null: a key rests for all models."""
    profile: str | None
    """The name of the key. Null: it is the model that failed."""
    reason: RestReason
    state: ProviderState
    since: datetime | None
    until: datetime | None
    """The next try. Null: it is being tried, or is called as always."""
    failures: int = 0
    """Conversations that the model failed since it last answered any."""
    conversations: list[str] = Field(default_factory=list[str])
    """Threads that the model failed in the last ten minutes, the last first, at most ten."""
    error: str | None
    """What the provider answered last."""


class ProvidersView(View):
    """What workers share of providers' keys and models."""

    rests: list[ProviderRest]
    redis_answers: bool = True
    """Whether Redis answers, in which workers share it."""


class ProvidersClear(Body):
    """Which rests and failures to forget."""

    name: Annotated[OneLine, StringConstraints(min_length=1, max_length=300)] | None = None
    """A provider, a model or a profile; null is all."""


class ProvidersCleared(ProvidersView):
    """What is left."""

    cleared: int
    """How many rests and failing models were forgotten."""
