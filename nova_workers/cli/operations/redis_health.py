"""What `INFO` of a Redis says about its health."""

import re
from collections.abc import Mapping
from typing import Any

from nova_workers.cli.operations.findings import Finding

MIN_REDIS = (7,)
"""The first with `BLMPOP`. Valkey gives the version of Redis whose commands it has, beside its own."""

_MUCH_MEMORY = 0.9


def check_info(info: Mapping[str, Any]) -> list[Finding]:
    """Check the version, eviction, persistence, its last writes to disk, its memory, and that it takes writes."""
    return [_version(info), _eviction(info), *_persistence(info), *_memory(info), *_role(info)]


def _version(info: Mapping[str, Any]) -> Finding:
    name = str(info.get("server_name", "redis")).capitalize()
    version = info.get("valkey_version") or info.get("redis_version")
    numbers = tuple(int(part) for part in re.findall(r"\d+", str(info.get("redis_version")))[:2])
    if numbers >= MIN_REDIS:
        return Finding("broker", "ok", f"{name} {version}")
    fix = "use Redis 7 or later, or Valkey: workers fetch messages with BLMPOP"
    return Finding("broker", "fail", f"{name} {version}", fix)


def _eviction(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return Finding("eviction", "ok", policy)
    fix = "set `maxmemory-policy noeviction`: under memory pressure Redis would drop doorbells and locks"
    return Finding("eviction", "fail", policy, fix)


def _persistence(info: Mapping[str, Any]) -> list[Finding]:
    if info.get("aof_enabled"):
        found = [Finding("persistence", "ok", "append-only file")]
    else:
        fix = "set `appendonly yes`, or know that runs wait for one reconciler tick after a restart of Redis"
        found = [Finding("persistence", "warn", "no append-only file", fix)]
    room = "is its disk full? Redis refuses writes until it can store them again; see its log"
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") != "ok":
        found.append(Finding("append-only file", "fail", "its last write failed", room))
    elif info.get("aof_enabled") and info.get("aof_last_bgrewrite_status", "ok") != "ok":
        fix = "is its disk full? The file grows until it can be rewritten; see the log of Redis"
        found.append(Finding("append-only file", "warn", "its last rewrite failed", fix))
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        found.append(Finding("snapshots", "fail", "the last one failed", room))
    return found


def _memory(info: Mapping[str, Any]) -> list[Finding]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most or used < _MUCH_MEMORY * most:
        return []
    fix = "raise `maxmemory`: when it is reached Redis refuses writes, so no doorbell rings"
    return [Finding("memory of redis", "fail" if used >= most else "warn", f"{used / most:.0%} of maxmemory", fix)]


def _role(info: Mapping[str, Any]) -> list[Finding]:
    if info.get("loading"):
        return [Finding("broker writes", "fail", "none: it is loading its data", "wait until it has")]
    if info.get("role", "master") == "master":
        return []
    return [Finding("broker writes", "fail", "none: it is a replica", "name the primary in NOVA_REDIS_URL")]
