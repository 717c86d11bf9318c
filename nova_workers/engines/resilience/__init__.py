"""Resilience against failing models: several keys, retries, breakers, rate limits, fallback models.

Vendor-neutral, like the turn. An engine implements `Provider` (one attempt, with one key, on one model) and gives its
turn a `ResilientResponder` around it. State that all workers share (cool-downs, breakers, rate limits) is in Redis;
without Redis each process uses its own.
"""

from nova_workers.engines.resilience.health import Failure
from nova_workers.engines.resilience.limiter import ANY_MODEL, RateLimit, RateLimiter
from nova_workers.engines.resilience.policy import Policy
from nova_workers.engines.resilience.redis_health import HealthKeys, RedisHealth
from nova_workers.engines.resilience.responder import ResilientResponder
from nova_workers.engines.resilience.seam import (
    AttemptFailed,
    Cause,
    ModelLimits,
    Provider,
    ResilienceMetrics,
    Route,
)
from nova_workers.engines.resilience.shared import Resilience, SharedHealth
from nova_workers.engines.resilience.tokens import CHARS_A_TOKEN, TokenEstimate

__all__ = [
    "ANY_MODEL",
    "CHARS_A_TOKEN",
    "AttemptFailed",
    "Cause",
    "Failure",
    "HealthKeys",
    "ModelLimits",
    "Policy",
    "Provider",
    "RateLimit",
    "RateLimiter",
    "RedisHealth",
    "Resilience",
    "ResilienceMetrics",
    "ResilientResponder",
    "Route",
    "SharedHealth",
    "TokenEstimate",
]
