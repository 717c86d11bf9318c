"""Which tool servers of an agent were away in its last turn: for people, and lost with Redis."""

from __future__ import annotations

from datetime import datetime

import structlog
from pydantic import TypeAdapter
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import AWAY_SERVERS_TTL_S, away_servers
from nova_workers.contracts.http.agents import ToolServerAwayView
from nova_workers.contracts.steps import ToolServerAway

_log = structlog.get_logger(__name__)

_views: TypeAdapter[list[ToolServerAwayView]] = TypeAdapter(list[ToolServerAwayView], config={"defer_build": True})


class AwayServers:
    """Written by workers, at the start of turns of agents with tool servers; read by the API."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def note(self, tenant_id: str, agent_id: str, away: tuple[ToolServerAway, ...], at: datetime) -> None:
        """Replace what is known of an agent. Best effort: it only informs."""
        key = away_servers(tenant_id, agent_id)
        views = [
            ToolServerAwayView(name=each.name, reason=each.reason, output=list(each.output), at=at) for each in away
        ]
        try:
            if views:
                await self._redis.set(key, _views.dump_json(views), ex=AWAY_SERVERS_TTL_S)
            else:
                await self._redis.delete(key)
        except RedisError as error:
            _log.warning("away_servers.not_noted", outage="redis", agent_id=agent_id, error=str(error))

    async def of(self, tenant_id: str, agent_id: str) -> list[ToolServerAwayView]:
        """Return the servers that were away in the last turn of an agent that has any; empty without Redis."""
        try:
            stored = await self._redis.get(away_servers(tenant_id, agent_id))
        except RedisError as error:
            _log.warning("away_servers.not_read", outage="redis", agent_id=agent_id, error=str(error))
            return []
        return [] if stored is None else _views.validate_json(stored)
