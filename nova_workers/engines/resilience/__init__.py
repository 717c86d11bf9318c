"""What stands between a turn and a model that is out of order: keys, retries, breaker, rate limit, other models.

Vendor-free, as the turn is. An engine implements `Provider` (one try, with one key, on one model) and gives its turn
a `ResilientResponder` around it. What all workers share (cool-downs, breakers, rate limits) is in Redis; without Redis
each process knows what it saw itself.
"""

from nova_workers.engines.resilience.limiter import RateLimit, RateLimiter
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
from nova_workers.engines.resilience.shared import Resilience
from nova_workers.engines.resilience.shared_health import SharedHealth
from nova_workers.engines.resilience.tokens import TokenEstimate

__all__ = [
    "AttemptFailed",
    "Cause",
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
