"""The AG-UI door: front ends of the Agent User Interaction protocol use the fleet's agents.

A run of the protocol is a part of a run here: it ends where the run asks its client or a person, and the request that
answers begins the next part. Ids of calls and of interrupts name the run, so the door keeps nothing.
"""

from .errors import error_document
from .routes import router

__all__ = ["ROUTES", "error_document"]

ROUTES = router.routes
