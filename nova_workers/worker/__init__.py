"""The worker process: Celery receives doorbells on threads, one asyncio loop executes all turns."""

from nova_workers.base.program import import_sparingly

import_sparingly("structlog", "redis")
