"""Live worker processes, from the records that they renew in Redis."""

import asyncio
from typing import cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.contracts.fleet import WorkerView
from nova_workers.keys import worker_presence, workers_index

__all__ = ["live_workers"]

_log = structlog.get_logger(__name__)

_DEADLINE_S = 1.0


async def live_workers(redis: Redis) -> list[WorkerView]:
    """Return the workers that renewed their record of late; none where Redis does not answer."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            worker_ids = cast(list[bytes], await redis.zrange(workers_index(), 0, -1))
            if not worker_ids:
                return []
            records = await redis.mget([worker_presence(worker_id.decode()) for worker_id in worker_ids])
    except (RedisError, TimeoutError) as error:
        _log.warning("workers.redis_unavailable", error=str(error))
        return []
    return [WorkerView.model_validate_json(record) for record in records if record is not None]
