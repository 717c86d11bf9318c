"""A process with children of a fork server, one for each file that its arguments name, which waits for their end."""

from __future__ import annotations

import asyncio
import sys

from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.suspects import ForkServer


async def main(*files: str) -> None:
    """Start a child for each file."""
    server = ForkServer(("-m", "tests.support.processes.forked_child"))
    children = [await server.start(Doorbell(file, "thread", "interactive")) for file in files]
    await asyncio.gather(*(child.ended() for child in children))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
