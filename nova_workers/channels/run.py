"""Runs one inbound channel until it ends or the process gets a signal."""

import argparse
import asyncio
import os
import signal
import sys

from nova_workers.channels.pipe import PipeChannel
from nova_workers.channels.relay import ANYONE, Relay
from nova_workers.client.client import NovaClient
from nova_workers.config import load_settings
from nova_workers.errors import NovaError
from nova_workers.observability.logging import configure_logging
from nova_workers.program import exit_on_failed_output

__all__ = ["main"]


def main() -> int:
    """Read the arguments and NOVA_API_URL and NOVA_API_KEY, which `nova channels` sets, and serve the channel."""
    options = _parser().parse_args()
    try:
        configure_logging(load_settings().telemetry, "channel")
        with exit_on_failed_output("nova"):
            asyncio.run(_serve(options))
    except NovaError as error:
        sys.stderr.write(f"nova: {error.message}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m nova_workers.channels")
    channel = parser.add_subparsers(required=True).add_parser("pipe", help="JSON lines on stdin and stdout")
    channel.add_argument("--name", default="pipe")
    channel.add_argument("--agent", default="nova")
    channel.add_argument("--allow", action="append", default=[], help=f"a sender; {ANYONE} permits everyone")
    channel.add_argument("--stream", action="store_true", help="deliver partial answers")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    serving, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert serving is not None  # noqa: S101 - this is a task
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    channel = PipeChannel(options.name, streams=options.stream)
    async with NovaClient(os.environ["NOVA_API_URL"], os.environ.get("NOVA_API_KEY")) as client:
        relay = Relay(client, channel, agent_id=options.agent, senders=options.allow)
        try:
            await relay.run()
        except asyncio.CancelledError:
            # Stopped by a signal: updates that are not done come again with the next start.
            return
