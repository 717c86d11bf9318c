"""Every Redis key and channel of the fleet, with its TTL.

Redis holds nothing that cannot be lost: locks, live events and doorbells. So every key has a TTL,
except those that Celery's transport owns (its queues, its unacked set and its bindings), whose life
is the broker's own business. ``tests/contract/test_redis_keys.py`` fails on any other permanent key.

All names start with ``nova:`` so that one Redis database can be watched, and wiped, by prefix.
"""

from typing import Final

BROKER_KEY_PREFIX: Final = "nova:"
"""``global_keyprefix`` of Celery's transport."""

EVENTS_TTL_S: Final = 3_600
"""Life of a run's event stream after its last entry. Later the same endpoint replays from the ledger."""

EVENTS_MAX_ENTRIES: Final = 20_000
"""Approximate cap of entries a stream, against a run that never ends."""

WORKER_TTL_S: Final = 30
"""Life of a worker's presence record; renewed every 10 s."""

PROVIDERS_TTL_S: Final = 120
"""Life of the report on providers; four times its interval. Without one, settings decide what can be had."""

AWAY_SERVERS_TTL_S: Final = 3_600
"""Life of the note on an agent's tool servers that are away; each turn of the agent writes it anew."""

BEAT_TTL_S: Final = 86_400
"""Life of the record of beat's last tick; what is left of it says how old that is. Beat writes it every second."""

CONTROL_CHANNEL: Final = "nova:control"
"""Pub/sub channel that notifies every worker process of cancel requests. No key, so no TTL."""


def thread_lock(thread_id: str) -> str:
    """Name a string: token of the worker that holds the thread. TTL: nine tenths of the lease's, renewed with it."""
    return f"nova:lock:thread:{thread_id}"


def thread_recheck(thread_id: str) -> str:
    """Name a string: set by a doorbell that found the lock held, deleted by the release. TTL: the lock's."""
    return f"nova:busy:thread:{thread_id}"


def run_events(run_id: str) -> str:
    """Name a stream: live events of a run, entry ids ``<attempt>-<seq>``. TTL `EVENTS_TTL_S` after the last entry."""
    return f"nova:run:{run_id}:events"


def run_channel(run_id: str) -> str:
    """Name the pub/sub channel that carries each new stream entry of a run to the API processes. No key."""
    return f"nova:run:{run_id}:live"


def orchestration_events(orchestration_id: str) -> str:
    """Name a stream: events of an orchestration's agents, ids by Redis. TTL `EVENTS_TTL_S` after the last entry."""
    return f"nova:orchestration:{orchestration_id}:events"


def orchestration_channel(orchestration_id: str) -> str:
    """Name the pub/sub channel that notifies the API processes of new entries of an orchestration. No key."""
    return f"nova:orchestration:{orchestration_id}:live"


def order_channel(order_id: str) -> str:
    """Name the pub/sub channel that notifies API processes that a work order has ended or needs a person. No key."""
    return f"nova:order:{order_id}:live"


def worker_presence(worker_id: str) -> str:
    """Name a string: JSON of a live worker process (host, pid, slots, busy, queues). TTL `WORKER_TTL_S`."""
    return f"nova:worker:{worker_id}"


def workers_index() -> str:
    """Name a sorted set: worker ids by last heartbeat. TTL `WORKER_TTL_S`, renewed by each heartbeat."""
    return "nova:workers"


def beat_tick() -> str:
    """Name a string: host and pid of the beat process that sent the last tick. TTL `BEAT_TTL_S`, from that tick."""
    return f"{BROKER_KEY_PREFIX}beat"


def open_streams(api_key_id: str) -> str:
    """Name a sorted set: open SSE streams of an API key by expiry. TTL two minutes, renewed by heartbeats."""
    return f"nova:streams:{api_key_id}"


def model_breaker(provider: str, model: str) -> str:
    """Name a hash: until when a model is not called, and whose call is the probe. TTL: ten minutes after a failure."""
    return f"nova:model:{provider}:{model}:breaker"


def model_failures(provider: str, model: str) -> str:
    """Name a sorted set: conversations that a model failed, by the time of their failure. TTL: that of the breaker."""
    return f"nova:model:{provider}:{model}:failed"


def model_rests() -> str:
    """Name a sorted set: keys of breakers and cool-downs by the end of their lives, for operators. TTL: four hours."""
    return "nova:model:rests"


def profile_cooldown(provider: str, profile: str, key_digest: str, model: str | None) -> str:
    """Name a hash: until when a provider key rests, for a model or all. TTL: three times the rest, up to three hours.

    The digest of the key is in the name, so that a replaced key does not inherit the pause of the old one.
    """
    return f"nova:model:{provider}:{model or '*'}:rests:{profile}:{key_digest}"


def model_rate_limits(provider: str) -> str:
    """Prefix of lists, one for each key, model and kind: what was let through in the last window. TTL the window."""
    return f"nova:model:{provider}:limits"


def provider_reports() -> str:
    """Name a string: JSON of what a worker found when it tried the providers of all engines. TTL `PROVIDERS_TTL_S`."""
    return "nova:providers"


def away_servers(tenant_id: str, agent_id: str) -> str:
    """Name a string: JSON of the tool servers that were away in the agent's last turn. TTL: `AWAY_SERVERS_TTL_S`."""
    return f"nova:away_servers:{tenant_id}:{agent_id}"


def broker_queue(queue: str) -> str:
    """Name a list: Celery's own queue. Permanent by the transport's design."""
    return f"{BROKER_KEY_PREFIX}{queue}"
