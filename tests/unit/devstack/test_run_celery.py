"""The names of Celery's nodes."""

import socket

from nova_workers.devstack.run_celery import node_name
from nova_workers.worker.remote_control import permitted_handlers
from tests.requirements import proves


@proves("celery.nodes")
def test_workers_of_one_name_on_one_host_are_nodes_of_their_own() -> None:
    host = socket.gethostname()
    names = {node_name(given) for given in ("w1", "w1", None, None)}
    assert len(names) == 4
    assert all(name.endswith(f"@{host}") for name in names)
    assert {name.rpartition("-")[0] for name in names} == {"w1", "worker"}
    assert node_name("all@here") == "all@here"
    assert node_name("mine@%h") == f"mine@{host}"


@proves("celery.commands")
def test_a_command_that_no_one_knows_is_refused_in_words() -> None:
    def pong(_: object) -> dict[str, str]:
        return {"ok": "pong"}

    handlers = permitted_handlers({"ping": pong, "shutdown": pong})
    assert handlers["ping"](None) == {"ok": "pong"}
    assert "send SIGTERM" in handlers["shutdown"](None)["error"]
    assert handlers["x" * 1_000](None, y=1)["error"].startswith("refused: ")
