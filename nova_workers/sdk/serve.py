"""Serves tools, agents, effects and evaluators in Python as an MCP server over standard input and output.

    python -m nova_workers.sdk.serve DIRECTORY|MODULE
    python -m nova_workers.sdk.serve --list DIRECTORY|MODULE

A directory is given with a slash, such as ``./``; all its ``tools/*.py`` are served, and its ``code/*.py`` to
workers. ``--list`` prints all of them as JSON and ends, without the MCP library.

Workers start it, and any MCP client can. It needs nothing of a fleet: what a call may know comes with the call.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final, TextIO

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.program import importing
from nova_workers.base.user_code import ending_late_imports
from nova_workers.contracts.user_tools import ListedAgent, ListedTool, ToolListing
from nova_workers.sdk.loading import UserCode, UserTool, load_code

_IMPORT_TIMEOUT_S: Final = 60.0
_EXIT_PROBLEM: Final = 2


def main(given: list[str] | None = None) -> int:
    """Serve or list; return the exit code."""
    parser = argparse.ArgumentParser("nova_workers.sdk.serve", description="Serves tools in Python over MCP.")
    parser.add_argument("source", help="a directory with a slash in its name, or the name of a module")
    parser.add_argument("--list", action="store_true", help="print the tools as JSON and end")
    parser.add_argument("--import-timeout", type=float, default=_IMPORT_TIMEOUT_S, help="seconds for all imports")
    options = parser.parse_args(given)
    wire = _own_streams()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    found = _listed(options.source, options.import_timeout, lambda problem: _report(problem, options.list, wire[1]))
    if isinstance(found, str):
        return _report(found, options.list, wire[1])
    if options.list:
        wire[1].write(_listing(found).model_dump_json() + "\n")
        wire[1].flush()
        return 0
    # The MCP library takes most of the start, and a list does not need it.
    with importing():
        protocol = import_module("nova_workers.sdk.protocol")
    protocol.serve(options.source, found, *wire)
    # Not by a return: threads of calls that do not end would keep the process.
    sys.stderr.flush()
    os._exit(0)


def _own_streams() -> tuple[TextIO, TextIO]:
    """Return input and output for messages, and let the code of users print to stderr instead and read nothing."""
    given, taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    streams = os.fdopen(given, "r", encoding="utf-8", errors="replace"), os.fdopen(taken, "w", encoding="utf-8")

    def close_in_child() -> None:
        # What a fork of the process writes would break the messages.
        for descriptor in (given, taken):
            os.close(descriptor)

    os.register_at_fork(after_in_child=close_in_child)
    return streams


def _listed(source: str, within_s: float, report: Callable[[str], int]) -> UserCode | str:
    """Return the code of a source, or what is wrong with it. An import that takes too long ends the process."""
    try:
        with ending_late_imports(source, within_s, lambda problem: os._exit(report(problem))):
            return load_code(source)
    except ConfigurationError as error:
        return error.message


def _report(problem: str, as_list: bool, output: TextIO) -> int:
    if as_list:
        output.write(ToolListing(problem=problem).model_dump_json() + "\n")
        output.flush()
    sys.stderr.write(problem + "\n")
    sys.stderr.flush()
    return _EXIT_PROBLEM


def _listing(code: UserCode) -> ToolListing:
    return ToolListing(
        tools=tuple(map(_describe, code.tools.values())),
        agents=tuple(
            ListedAgent(name=agent.name, description=agent.description, place=agent.place)
            for agent in code.agents.values()
        ),
        effects=tuple(map(_describe, code.effects.values())),
        evaluators=tuple(map(_describe, code.evaluators.values())),
    )


def _describe(tool: UserTool) -> ListedTool:
    options = tool.options
    return ListedTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        idempotent=options.idempotent or options.read_only,
        read_only=options.read_only,
        needs_approval=options.needs_approval,
        timeout_s=options.timeout_s,
        concurrency=options.concurrency,
        place=tool.place,
    )


if __name__ == "__main__":
    sys.exit(main())
