"""The environments of the peers: each has its own, in a folder that is given, with the newest release that fits it."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_GRAPH = '''"""The agent of both peers: it answers the text reversed."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    text: str
    answer: str


async def answer(state: State) -> dict[str, str]:
    return {"answer": state["text"][::-1]}


graph = StateGraph(State).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END).compile()
'''
_CONFIG = '{"dependencies": ["."], "graphs": {"echo": "./echo.py:graph"}}\n'


@dataclass(frozen=True, slots=True)
class Peer:
    """A server of another project.

    Attributes:
        name: Of its column.
        requirements: What pip installs.
        package: The package whose version is shown.
        interpreters: Of Python, the first that is found is its.
        config: The name of its configuration's file.
    """

    name: str
    requirements: tuple[str, ...]
    package: str
    interpreters: tuple[str, ...]
    config: str


_PYTHONS = ("python3.14", "python3.13", "python3.12", sys.executable)
LANGGRAPH = Peer("LangGraph (dev)", ("langgraph-cli[inmem]",), "langgraph-api", (sys.executable,), "langgraph.json")
# On Python 3.11 pip finds an older release of it, which does not say that it needs this extra.
AEGRA = Peer("Aegra", ("aegra-cli", "sqlalchemy[asyncio]"), "aegra-api", _PYTHONS, "aegra.json")


@dataclass(frozen=True, slots=True)
class Environment:
    """An installed peer.

    Attributes:
        bin: The folder of its programs.
        project: Where its agent is.
        version: Of its server.
    """

    bin: Path
    project: Path
    version: str


def install(peer: Peer, folder: Path) -> Environment:
    """Return the peer's environment below a folder, and make it first if it is not there.

    Raises:
        subprocess.CalledProcessError: pip cannot install it.
    """
    home = folder / peer.package
    bin_folder, project = home / "venv" / "bin", home / "project"
    if not project.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(_interpreter(peer.interpreters), "-m", "venv", str(home / "venv"))
        _run(str(bin_folder / "python"), "-m", "pip", "install", "--quiet", *peer.requirements)
        project.mkdir()
        (project / "echo.py").write_text(_GRAPH, encoding="utf-8")
        (project / peer.config).write_text(_CONFIG, encoding="utf-8")
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    (found,) = metadata.distributions(name=peer.package, path=[str(packages)])
    return Environment(bin_folder, project, found.version)


def _interpreter(candidates: Sequence[str]) -> str:
    return next(candidate for candidate in candidates if _starts(candidate))


def _starts(program: str) -> bool:
    # A shim of a version manager is found, and cannot be started.
    if (found := shutil.which(program)) is None:
        return False
    return subprocess.run([found, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
