"""The periodic ticks that Celery beat sends."""

from nova_workers.base.program import import_sparingly

import_sparingly("structlog", "redis")
