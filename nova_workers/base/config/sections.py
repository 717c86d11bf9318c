"""The sections of the settings, with the evidence for each default."""

from pathlib import Path
from typing import Annotated, Literal, Self, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from nova_workers.base.config.forms import (
    Count,
    Folder,
    Host,
    OptionalHttpUrl,
    OptionalSecret,
    Proxies,
    PublicUrl,
    Seconds,
    SecondsOrNone,
)
from nova_workers.base.project_files import name_in
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.vocabulary import QUEUES, RUN_QUEUES, Queue

Days = Annotated[int, Field(ge=0, le=36_500)]
"""0 keeps rows for ever."""


def _known_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone of the IANA database, as 'Europe/Oslo' is") from error
    return name


Timezone = Annotated[str, AfterValidator(_known_timezone)]
"""The name of a time zone in the IANA database."""


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        parts = urlsplit(origin)
        whole = f"{parts.scheme}://{parts.netloc}"
        if origin != "*" and (parts.scheme not in {"http", "https"} or not parts.netloc or origin != whole):
            raise ValueError(f"{origin!r} is no origin, as 'https://app.example.com' and 'http://localhost:3000' are")
    return origins


class Section(TrueNumbers):
    """Base of a part of the settings. Unknown names are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ApiSettings(Section):
    """The HTTP API."""

    host: Host = "127.0.0.1"
    """Loopback by default: a new fleet is reachable from this machine only."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8700
    max_body_bytes: Count = 4 * 1024 * 1024
    max_import_bytes: Count = 16 * 1024 * 1024
    """The limit of `POST /v1/threads` with messages: 10,000 of 1,600 bytes, and of projects that are applied."""
    max_message_chars: Count = 1_000_000
    """About 250,000 tokens: above any context window in service, so that the model refuses, and not the API."""
    max_streams_per_key: Count = 256
    heartbeat_s: Seconds = 15.0
    """Interval of SSE comments: below the idle timeout of common proxies, 30 to 60 s."""
    wait_timeout_s: Seconds = 600.0
    """Longest time that create-and-wait holds a connection; then 202 with the run's current state."""
    key_cache_s: Seconds = 5.0
    """A revoked key stops working after at most this long."""
    trusted_proxies: Proxies = ()
    """Addresses, networks and names of proxies whose X-Forwarded-For is believed. By default none: any client may write
    it."""
    cors_origins: Annotated[tuple[str, ...], AfterValidator(_origins)] = ()
    """Origins of web pages whose scripts may call the API with a key; ``*`` is any. By default none."""
    public_url: PublicUrl = None
    """Its address as clients know it, behind a proxy: what names it to them has this. Unset: that of the request."""
    requests_per_s_per_key: Count = 500
    """By one process, over 10 s."""
    requests_per_s_per_address: Count = 1_000
    """By one process, over 10 s, with and without a key. IPv6 counts by /64."""
    requests_per_s_without_key: Count = 20
    """By one process and address, over 10 s: probes, metrics, the reference, and what is refused for its key."""
    failed_keys_per_minute: Count = 30
    """Keys that are not valid, by address and process; then an address gets no further query for an unknown key."""
    max_connections: Annotated[int, Field(ge=10)] = 4_096
    """The limit of a process; lower where it may not open as many files."""
    max_connections_per_address: Count = 2_048
    """The limit of a process: half of all, so that one address leaves room for others; proxies that are trusted have no
    such limit."""
    head_timeout_s: Seconds = 10.0
    """For the head of a request to arrive, from the start of the connection or of the head."""
    body_timeout_s: Seconds = 60.0
    """The time for a body to arrive: 70 KB/s for the largest."""
    idle_timeout_s: Seconds = 75.0
    """A connection without a request ends after this long: longer than clients and proxies keep one for their next
    request, which is 5 to 60 s. A request that meets the end of its connection is lost."""
    unread_timeout_s: Seconds = 30.0
    """A connection whose client takes nothing of what is sent ends after this long."""
    connections_per_tenant: Count = 8
    """Of the database's (`database_pool`), for the requests of one tenant; and for all without a key."""
    archives: Count = 4
    """Exports and imports at once, one of a tenant. Each holds a connection to the database beside `database_pool`."""
    archive_timeout_s: Seconds = 3_600.0
    """The limit of an export or import."""


_Pool = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class WorkerSettings(Section):
    """One worker process."""

    concurrency: Count = 1_024
    """Concurrent turns. A turn in flight takes 0.05 to 0.2 MB (measured), a free slot nothing."""
    queues: tuple[Queue, ...] = QUEUES
    pool: _Pool | None = None
    """The pool of this worker: it executes runs of tenants with this pool, and nothing else; unset executes those of
    tenants without one, and the fleet's work."""
    trust_pools: dict[Literal["sandbox", "controlled", "unrestricted"], _Pool] = {}  # noqa: RUF012 - pydantic copies it
    """Pools of tenants by the highest trust of their ceilings, for those whose ceilings name none. The same on all
    workers: a worker without it takes the runs as common ones."""
    drain_grace_s: Seconds = 20.0
    """After SIGTERM: time for runs to reach a step boundary before they are stopped in mid-step."""
    drain_deadline_s: Seconds = 28.0
    """After SIGTERM: the watchdog ends the process. Below Kubernetes' default 30 s."""
    heartbeat_dir: Folder | None = None
    """Folder of files for probes (touched by Celery's hub, by the asyncio loop, and while all servers serve); none if
    unset."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Prometheus port of the worker; 0 turns it off."""
    metrics_host: Host = "127.0.0.1"
    """Its address. Loopback by default: the metrics show how much is spent on which model."""

    @model_validator(mode="after")
    def _drains_in_time(self) -> Self:
        if self.drain_grace_s > self.drain_deadline_s:
            raise ValueError(
                f"NOVA_WORKER__DRAIN_GRACE_S ({self.drain_grace_s:g}) is above NOVA_WORKER__DRAIN_DEADLINE_S "
                f"({self.drain_deadline_s:g}), at which the process ends"
            )
        return self

    def consumed_queues(self) -> tuple[str, ...]:
        """Return the names of the broker's queues that it consumes. A pool has those of runs only."""
        if self.pool is None:
            return self.queues
        return tuple(f"{queue}.{self.pool}" for queue in self.queues if queue in RUN_QUEUES)


_FENCED_AT = 2 / 3
"""Share of a lease after which a worker that could not renew it stops the run."""


class RunSettings(Section):
    """The run protocol."""

    lease_ttl_s: Seconds = 30.0
    lease_renew_s: Seconds = 10.0
    max_attempts: Count = 5
    """A run that lost its worker this often since its last committed step fails as `worker_lost`: it may be what kills
    its host."""
    rering_after_s: Seconds = 10.0
    """A queued run whose doorbell is older than this is rung again by the reconciler."""
    idempotency_ttl_s: Seconds = 86_400.0
    provider_patience_interactive_s: SecondsOrNone = 60.0
    """How long an interactive run waits for a model provider that cannot be used, before it fails: a person waits. 0 is
    not at all."""
    provider_patience_background_s: SecondsOrNone = 86_400.0
    """The same for background runs: over a night and a day, in which an operator sees it."""
    reconcile_every_s: Seconds = 5.0
    lost_workers_every_s: Seconds = 1.0
    """Interval at which each worker looks for workers that ended. Three looks without one decide."""
    max_turns: Count = 100
    """Most model calls of a turn if neither run nor agent sets a limit."""
    reasoning_timeout_s: Seconds = 7200.0
    """Most time in total that a turn waits for its model; tools do not count."""
    tool_timeout_s: Seconds = 7200.0
    """Most time of one tool call."""

    @model_validator(mode="after")
    def _renews_in_time(self) -> Self:
        if self.lease_renew_s >= self.lease_ttl_s * _FENCED_AT:
            raise ValueError(
                f"NOVA_RUNS__LEASE_RENEW_S ({self.lease_renew_s:g}) is not below two thirds of NOVA_RUNS__LEASE_TTL_S "
                f"({self.lease_ttl_s:g}), at which a worker stops its runs"
            )
        return self


class TaskSettings(Section):
    """Scheduled work on active tasks, in the tenant's hours."""

    tick_every_s: Seconds = 5.0
    """Interval of the check for due tasks, and so the maximum delay of one."""
    park_after_idle: Count = 3
    """Consecutive runs without a change of a task after which it is parked."""


class TriggerSettings(Section):
    """Triggers."""

    tick_every_s: Seconds = 1.0
    """Interval of the check for due triggers, and so the maximum delay of an occurrence. A check of 100,000 triggers
    that are not due takes less than a millisecond (measured)."""
    batch: Annotated[int, Field(ge=1, le=5_000)] = 500
    """Occurrences that one transaction fires."""
    gate_timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0
    """Longest time of a gate's request."""
    gates_at_once: Count = 50


class PromptSettings(Section):
    """Prompt content besides the agents' own configuration."""

    memories: Annotated[int, Field(ge=0)] = 50
    """Most memories, the newest ones. A tool finds the others."""
    memory_chars: Annotated[int, Field(ge=0)] = 8_000
    """Most characters of all of them: about 2,000 tokens."""
    formatting: dict[str, str] = Field(default_factory=dict[str, str])
    """Format of answers, in words, by the ``channel`` of a run's metadata; ``*`` is for all others. Default:
    Markdown."""


class StreamSettings(Section):
    """Live events."""

    flush_ms: Annotated[int, Field(ge=0)] = 20
    """Interval at which a run's events are sent. 500 streaming turns then cost 25,000 entries/s at the most,
    under the 33,000/s that one Python process pipelines (measured)."""


_EffectName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}:[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class PackageEffectSettings(Section):
    """Where an effect of a package is switched on."""

    tenants: Annotated[frozenset[str], Field(min_length=1)] = frozenset({"*"})
    """Ids of the tenants whose runs it follows; `*` is all."""
    agents: Annotated[frozenset[str], Field(min_length=1)] = frozenset({"*"})
    """Ids of the agents whose runs it follows; `*` is all."""
    secrets: tuple[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")], ...] = ()
    """Secrets of a run's tenant that it may read."""


class EffectSettings(Section):
    """Post-run work."""

    enabled: bool = True
    embedding_provider: Literal["local", "openai", "off"] = "local"
    """`local` is all-MiniLM-L6-v2 in int8 from a wheel; `openai` any server with POST /v1/embeddings."""
    embedding_base_url: OptionalHttpUrl = None
    embedding_api_key: SecretStr | None = None
    embedding_model: str = "all-MiniLM-L6-v2-onnx-int8"
    embedding_batch: Count = 32
    max_attempts: Count = 8
    retry_base_s: Seconds = 5.0
    retry_max_s: Seconds = 3600.0
    backfill: bool = True
    """Whether idle workers index older messages without words or without a vector of the current model."""
    backfill_every_s: Seconds = 10.0
    backfill_busy: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the time that one worker process spends on it while there is work."""
    packages: dict[_EffectName, PackageEffectSettings] = Field(default_factory=dict[str, PackageEffectSettings])
    """Effects of installed packages, as ``PACKAGE:FUNCTION``; those that are not named are off."""


class RetentionSettings(Section):
    """How long rows are kept that are no longer needed. 0 keeps them for ever."""

    every_s: Seconds = 60.0
    busy: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of the time that one worker process spends on it while there is work: 9 s of 60."""
    done_effects_days: Days = 7
    failed_effects_days: Days = 30
    deliveries_days: Days = 30
    """Deliveries that were sent, or failed permanently."""
    inbox_days: Days = 0
    """Items of the inbox: by default only people delete them."""
    firings_days: Days = 90
    work_orders_days: Days = 90
    """Ended work orders with their results, parts and trails."""
    audit_days: Days = 365
    """Records of the audit log: audits of a year look back that far."""
    deleted_threads_days: Days = 30
    """The time from the deletion of a thread until its rows are purged."""


class ToolProject(Section):
    """Tools and agents in Python of one tenant: a wheel, or a directory."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    """The capability is ``project:NAME``. A wheel has it in the name of its file."""
    wheel: Path | None = None
    """A wheel that `nova build` made."""
    folder: Folder | None = None
    """Its modules are ``tools/*.py`` and ``code/*.py``."""
    tenant: Annotated[str, Field(min_length=1, max_length=64)] = "ten_default"
    """The id of the tenant whose agents may be granted it. `*` is each tenant of the fleet, as in tests."""

    @model_validator(mode="before")
    @classmethod
    def _is_named_by_its_wheel(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        values = cast("dict[str, object]", given)
        wheel = values.get("wheel")
        if (wheel is None) == (values.get("folder") is None):
            raise ValueError("give `wheel`, which `nova build` made, or `folder`, one of the two")
        if wheel is None:
            return values
        name = name_in(Path(str(wheel)).name)
        if name is None or values.get("name", name) != name:
            raise ValueError(
                f"wheel is {str(wheel)!r}; expected the file of a project as `nova build` names it, such as "
                "'shop-0.1.0-py3-none-any.whl'"
            )
        return {**values, "name": name}


class ToolSettings(Section):
    """The tools of agents: files, search, web and shell by an agent's trust, and those of projects and servers."""

    projects: tuple[ToolProject, ...] = ()
    """Tools and agents in Python, which API and workers read when they start. A name is one project's in a fleet."""
    project_root: Folder | None = None
    """Where wheels of projects are unpacked; `<home>/projects` when unset."""

    workspace_root: Folder | None = None
    """Agent directories, `<tenant>/<agent>`; `<home>/workspace` when unset. Workers on several machines need a shared
    one, because a run may continue on any of them."""
    deny_commands: tuple[str, ...] = ()
    """Shell commands that no agent may run, in addition to the built-in list."""
    ask_commands: tuple[str, ...] = ()
    """Shell commands that a person must permit, whatever an agent's rules are."""
    send_file_max_bytes: Annotated[int, Field(ge=1, le=100_000_000)] = 10_000_000
    """Largest file that an agent may send to people. It is stored in Postgres, and held in memory while it is sent."""
    shell_timeout_s: Seconds = 120.0
    shell_max_timeout_s: Seconds = 600.0
    """Longest time that a model may request for one command."""
    shell_output_bytes: Annotated[int, Field(ge=1_000)] = 32_768
    """About 8,000 tokens: the beginning and the end of what a command prints."""
    shell_environment: tuple[str, ...] = ()
    """Names of the worker's environment variables that commands get in addition to PATH, the locale and the like."""
    shell_sandbox: bool = False
    """Whether commands of every tenant run in the sandbox, not only of those with ceilings."""
    sandbox: Literal["auto", "bubblewrap", "namespaces", "landlock"] = "auto"
    """What makes the sandbox: the first of the three that works on the worker's machine, or one of them."""
    shell_sandbox_network: bool = True
    egress_allow_hosts: tuple[str, ...] = ()
    """`host` or `host:port` that commands and MCP programs reach through the proxy although they are not public."""
    command_memory_bytes: Annotated[int, Field(ge=64 << 20)] = 4 << 30
    """Most memory of a command in the sandbox: of all its processes together in a cgroup, of each without one. Builds
    of large programs take 2 GB."""
    command_processes: Annotated[int, Field(ge=16)] = 512
    """Most processes and threads of a command in a cgroup. Without one, 4,096 of its user."""
    command_open_files: Annotated[int, Field(ge=64)] = 4_096
    """Most open files of each process of a command in the sandbox."""
    command_file_bytes: Annotated[int, Field(ge=1 << 20)] = 10 << 30
    """The longest file that a command in the sandbox can write."""
    command_tmpfs_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    """Most that a command can write to /tmp, and to each other directory that is empty and its own. It is memory."""
    command_cgroup: Folder | None = None
    """A directory of cgroup v2 that is the workers' to divide, without processes, with `memory` and `pids`. Unset, the
    workers look for one."""
    web_search: bool = True
    """The provider's own search tool. Turn it off for a gateway that does not know it."""
    web_search_max_uses: Count = 8
    fetch_ports: tuple[int, ...] = (80, 443, 8080, 8443)
    fetch_allow_hosts: tuple[str, ...] = ()
    """`host` or `host:port` that agents may fetch from although they are not public."""
    mcp_commands: tuple[str, ...] = ()
    """Patterns of the command lines that agents' configurations may start as MCP servers. They run as the worker's
    user, so otherwise everyone with the permission to write an agent could run any program."""
    mcp_env: tuple[str, ...] = ()
    """Patterns of the environment variables that agents' configurations may set for these: of names that no program
    takes for an instruction about what to run, such as `GITHUB_TOKEN`."""
    mcp_allow_hosts: tuple[str, ...] = ()
    """`host` or `host:port` of MCP servers that may be reached although they are not public, also over plain HTTP."""
    mcp_start_timeout_s: Seconds = 10.0
    """How long a turn waits for an MCP server to start and to list its tools. Then it goes on without them, and the
    server is tried again by turns after 10 s, 20 s, and so on up to 5 minutes."""
    browser_command: str | None = None
    """How to start the Playwright MCP server, such as `npx @playwright/mcp@latest`, or the URL of one that runs. If
    unset, no agent has a browser."""
    fetch_max_redirects: Annotated[int, Field(ge=0)] = 5
    fetch_max_bytes: Count = 2_000_000
    fetch_timeout_s: Seconds = 30.0


class AudioSettings(Section):
    """Speech to text and text to speech, for agents with the capability `audio`."""

    transcription_url: OptionalHttpUrl = None
    """A server with POST /v1/audio/transcriptions, without that path; it is preferred to installed programs."""
    transcription_api_key: OptionalSecret = None
    transcription_model: str = "base"
    """A name of the server's or the Whisper package's, or the path of a model. Models are never downloaded."""
    voice: str | None = None
    """A voice by name; for Piper the path of its .onnx file."""
    max_bytes: Count = 25_000_000
    """Largest recording: what common servers take."""
    timeout_s: Seconds = 600.0
    max_processes: Count = 1
    """Concurrent programs of one worker; others wait. A model uses every core."""


class TelemetrySettings(Section):
    """Logs, traces and metrics."""

    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: OptionalHttpUrl = None
    """OTLP/HTTP collector, e.g. http://127.0.0.1:4318. Traces are off when unset."""
    service_name: str = "nova-workers"
    trace_content: bool = False
    """Whether spans of model calls and tool calls record what was written, which then leaves this machine."""
