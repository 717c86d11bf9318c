"""The periodic ticks that Celery beat sends."""

from nova_workers.program import import_sparingly

import_sparingly("structlog", "redis")
