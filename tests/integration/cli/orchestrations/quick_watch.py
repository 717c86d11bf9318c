"""A program that watches an orchestration, with shorter intervals than a person would want."""

import asyncio
import os
import sys

from nova_workers.cli.command import open_session
from nova_workers.cli.orchestrations.watching import Pace, watch


async def main() -> int:
    """Watch until the end, and return the exit code."""
    url, key = os.environ["NOVA_API_URL"], os.environ["NOVA_API_KEY"]
    async with open_session(json_mode=False, api_url=url, api_key=key) as session:
        return await watch(session, sys.argv[1], pace=Pace(silent_after_s=0.5, look_every_s=0.1))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
