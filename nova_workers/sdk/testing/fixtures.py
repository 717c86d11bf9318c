"""The fixtures of the plugin."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nova_workers.cli.projects.files import find_root
from nova_workers.contracts.http.wire import RunView
from nova_workers.sdk.testing.fleet import Clock, Entry, Fleet, LocalFleet
from nova_workers.sdk.testing.models import Model, ModelServer


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """Serve the models of the session's tests on loopback."""
    server = ModelServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def project_fleet(request: pytest.FixtureRequest, model_server: ModelServer) -> Iterator[LocalFleet]:
    """Start the fleet of the session, with the project in whose folder the tests are."""
    root = find_root(Path(request.config.rootpath))
    # Short, for the sockets in it.
    with tempfile.TemporaryDirectory(prefix="nova-test-") as home:
        local = LocalFleet(root, Path(home), model_url=model_server.url)
        try:
            local.start()
            yield local
        finally:
            local.stop()


@pytest.fixture
def fleet(project_fleet: LocalFleet) -> Iterator[Fleet]:
    """Make a tenant for the test, and apply the project to it."""
    with project_fleet.tenant() as fleet:
        yield fleet


@pytest.fixture
def model(model_server: ModelServer) -> Iterator[Model]:
    """Give the model that the agents of the test ask, and fail the test where its script and the requests differ."""
    with model_server.model() as model:
        yield model
    problems = model.problems()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture
def run(fleet: Fleet, model: Model) -> Callable[..., RunView]:
    """Return a function that sends a message to an agent. See `Fleet.run`."""
    del model
    return fleet.run


@pytest.fixture
def transcript(fleet: Fleet) -> Callable[[RunView], list[Entry]]:
    """Return a function that shows a conversation. See `Fleet.transcript`."""
    return fleet.transcript


@pytest.fixture
def clock(fleet: Fleet) -> Clock:
    """Return the times of triggers, and what fires them. See `Clock`."""
    return fleet.clock
