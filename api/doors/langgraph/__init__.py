"""The LangGraph door: clients of LangGraph's server use the fleet's agents as assistants.

A run of the protocol is a run here, its thread a thread, and an interrupt what a run asks its caller or a person. So
the door keeps nothing: the id of an interrupt is that of a wait, the id of an event that of the run's event.
"""

from . import assistants, crons, refused, runs, streams, threads
from .errors import error_document

__all__ = ["ROUTES", "error_document"]

ROUTES = [
    *assistants.router.routes,
    *threads.router.routes,
    *streams.router.routes,
    *runs.router.routes,
    *crons.router.routes,
    *refused.router.routes,
]
"""``/langgraph``: what `langgraph-sdk` calls. Routes of what the fleet has not come last."""
