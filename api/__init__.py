"""The HTTP API: a thin layer that authenticates, validates, writes one row and responds.

It holds no state that a restart would lose: what it accepts is in Postgres before it responds, and
streams can be replayed from there.
"""

from nova_workers.base.program import import_sparingly

from .unbuilt import import_unbuilt

import_sparingly("structlog", "redis")
import_unbuilt("fastapi.openapi.models")
