"""The OpenAI door: clients of the Responses API use the fleet's agents as models.

A response is a run, and its id is the run's; a conversation is a thread. So the door keeps nothing.
"""

from .errors import error_document
from .routes import router

__all__ = ["ROUTES", "error_document"]

ROUTES = router.routes
