"""Runs inbound channels until they end or the process gets a signal."""

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError, NovaError
from nova_workers.base.observability.logging import configure_logging
from nova_workers.base.program import exit_on_failed_output
from nova_workers.channels.allow_list import ANYONE
from nova_workers.channels.pipe import PipeChannel
from nova_workers.channels.relay import Relay
from nova_workers.channels.serving import serve_package
from nova_workers.client.client import NovaClient


def main() -> int:
    """Read the arguments and NOVA_API_URL and NOVA_API_KEY, which `nova channels` sets, and serve the channel."""
    options = _parser().parse_args()
    try:
        settings = load_settings()
        configure_logging(settings.telemetry, "channel")
        with exit_on_failed_output("nova"):
            asyncio.run(_serve(options, settings))
    except NovaError as error:
        sys.stderr.write(f"nova: {error.message}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m nova_workers.channels")
    channels = parser.add_subparsers(required=True, dest="channel")
    pipe = channels.add_parser("pipe", help="JSON lines on stdin and stdout")
    pipe.add_argument("--name", default="pipe")
    pipe.add_argument("--agent", default="nova")
    pipe.add_argument("--allow", action="append", default=[], help=f"a sender; {ANYONE} permits everyone")
    pipe.add_argument("--stream", action="store_true", help="deliver partial answers")
    channels.add_parser("telegram", help="the bots of the settings")
    package = channels.add_parser("run", help="a channel of an installed package")
    package.add_argument("entry")
    package.add_argument("--name")
    package.add_argument("--agent", default="nova")
    package.add_argument("--allow", action="append", default=[], help=f"a sender; {ANYONE} permits everyone")
    package.add_argument("--deliveries-to", help="the conversation for deliveries of other runs")
    return parser


async def _serve(options: argparse.Namespace, settings: Settings) -> None:
    serving, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert serving is not None  # noqa: S101 - this is a task
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    async with NovaClient(os.environ["NOVA_API_URL"], os.environ.get("NOVA_API_KEY")) as client:
        try:
            match options.channel:
                case "telegram":
                    await _telegram()(client, settings)
                case "run":
                    await _serve_package(options, client)
                case _:
                    await _serve_pipe(options, client)
        except asyncio.CancelledError:
            # Stopped by a signal: updates that are not done come again with the next start.
            return


async def _serve_pipe(options: argparse.Namespace, client: NovaClient) -> None:
    channel = PipeChannel(options.name, streams=options.stream)
    await Relay(client, channel, agent_id=options.agent, senders=options.allow).run()


async def _serve_package(options: argparse.Namespace, client: NovaClient) -> None:
    await serve_package(
        client,
        options.entry,
        name=options.name or options.entry,
        agent_id=options.agent,
        senders=options.allow,
        deliveries_to=options.deliveries_to,
    )


def _telegram() -> Callable[[NovaClient, Settings], Awaitable[None]]:
    """Return the server of the Telegram channel, whose library only this channel loads.

    Raises:
        ConfigurationError: The library is not installed.
    """
    if find_spec("aiogram") is None:
        raise ConfigurationError("The Telegram channel needs aiogram: pip install 'nova-workers[telegram]'.")
    return importlib.import_module("nova_workers.channels.telegram.serve").serve_telegram
