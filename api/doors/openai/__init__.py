"""The OpenAI door: clients of the Responses API use the fleet's agents as models.

A response is a run, and its id is the run's; a conversation is a thread. So the door keeps nothing.
"""

from . import compacting, conversations, routes
from .errors import error_document

__all__ = ["ROUTES", "error_document"]

ROUTES = [*compacting.router.routes, *conversations.router.routes, *routes.router.routes]
