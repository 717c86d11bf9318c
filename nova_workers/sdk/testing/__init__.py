"""A pytest plugin for the tests of a project: the fleet on this machine, and a model whose answers the test gives.

Load it in ``tests/conftest.py``::

    pytest_plugins = ["nova_workers.sdk.testing"]

`fleet` is a tenant of its own with the project applied, in a fleet that the first test of the session starts. `model`
is what its agents ask. `run` sends a message, `transcript` shows what was said and called, `clock` fires triggers.
"""

from nova_workers.sdk.testing.fixtures import clock, fleet, model, model_server, project_fleet, run, transcript
from nova_workers.sdk.testing.fleet import Clock, Entry, Fired, Fleet
from nova_workers.sdk.testing.models import Model

__all__ = [
    "Clock",
    "Entry",
    "Fired",
    "Fleet",
    "Model",
    "clock",
    "fleet",
    "model",
    "model_server",
    "project_fleet",
    "run",
    "transcript",
]
