"""The A2A door: agents and clients of the Agent2Agent protocol 1.0 use the fleet's agents.

A task of the protocol is a run, and its context is the run's thread, by the same ids: the door keeps nothing. The SDK
has the types, reads the requests and writes the answers; what is asked of it goes to the service of all doors.
"""

from .errors import error_document
from .routes import ROUTES

__all__ = ["ROUTES", "error_document"]
