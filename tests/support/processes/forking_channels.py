"""Run as a script: forks a channel for each line of stdin, and writes its process id to stdout. See `channel_forks`."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

import nova_workers.channels.run
import nova_workers.channels.telegram.serve
from nova_workers.channels.__main__ import main

_PR_SET_PDEATHSIG = 1
_LOADED = (nova_workers.channels.run, nova_workers.channels.telegram.serve)
"""What a channel imports when it starts."""


def _become_channel(request: dict[str, Any]) -> None:
    """Be what `python -m nova_workers.channels` is, with the process that forks as its parent."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for opened, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, standard)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["nova_workers.channels", *request["arguments"]]
    sys.exit(main())


def _fork_for_each_line() -> None:
    # The kernel forgets children that ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become_channel(request)
        print(child, flush=True)


if __name__ == "__main__":
    _fork_for_each_line()
