"""The OpenAI door: clients of the Responses and the Chat Completions API use the fleet's agents as models.

A response is a run, and its id is the run's; a conversation is a thread. So the door keeps nothing.
"""

from . import chat_routes, compacting, conversations, embeddings, models, routes
from .errors import error_document

__all__ = ["ROUTES", "error_document"]

_MODULES = (chat_routes, compacting, conversations, embeddings, models, routes)
ROUTES = [route for module in _MODULES for route in module.router.routes]
