"""`nova up`: the stack in the foreground until Ctrl-C, SIGTERM, or a process that fails too often."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from typing import Never

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import NovaError
from nova_workers.devstack.home import FLOWER_USER, StackState, lock_home
from nova_workers.devstack.log_lines import LineSink, TerminalLines
from nova_workers.devstack.stack import Stack, StackOptions

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Read the command line, run the stack in the foreground and return the exit code."""
    parser = argparse.ArgumentParser(prog="nova up")
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    try:
        return run_stack(load_settings(), StackOptions(port=options.port, workers=options.workers))
    except NovaError as error:
        sys.stderr.write(f"nova: {error.message}\n")
        return 1


def run_stack(settings: Settings, options: StackOptions | None = None, sink: LineSink | None = None) -> int:
    """Run the stack in the foreground and return the exit code: 0 after a signal, else 1.

    The first signal stops everything in order; a second one kills what is left at once. SIGUSR1 restarts API and
    workers, for code of projects that has changed.

    Raises:
        AlreadyRunning: Another stack runs on this home; the message says where.
        ConfigurationError: The home cannot be used.
    """
    sink = sink or TerminalLines()
    with lock_home(settings.home):
        return asyncio.run(_run(settings, options or StackOptions(), sink))


async def _run(settings: Settings, options: StackOptions, sink: LineSink) -> int:
    stack = Stack(settings, sink, options)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop_requested.is_set():
            sink.say(f"{number.name} again: killing what is left; nothing accepted is lost", alarm=True)
            stack.kill()
            return
        sink.say(f"{number.name}: stopping; once more kills at once")
        stop_requested.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    reload_requested = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, reload_requested.set)
    try:
        return await _serve(stack, stop_requested, reload_requested, sink)
    except NovaError as error:
        sink.say(error.message, alarm=True)
        return 1
    finally:
        await stack.stop()
        sink.say("stopped")


async def _serve(stack: Stack, stop_requested: asyncio.Event, reload_requested: asyncio.Event, sink: LineSink) -> int:
    stop = asyncio.create_task(stop_requested.wait())
    run = asyncio.create_task(_start_and_reload(stack, reload_requested, sink))
    failed = asyncio.create_task(stack.failed())
    try:
        await asyncio.wait({stop, run, failed}, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            return 0
        if failed.done():
            sink.say(failed.result(), alarm=True)
            return 1
        return await run
    finally:
        for task in (stop, run, failed):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, NovaError):
            await run


async def _start_and_reload(stack: Stack, reload_requested: asyncio.Event, sink: LineSink) -> Never:
    """Start the stack, and reload it as often as that is requested. It ends by its error only.

    Raises:
        NovaError: The stack could not start.
    """
    _welcome(await stack.start(), stack, sink)
    while True:
        await reload_requested.wait()
        reload_requested.clear()
        await stack.reload()


def _welcome(state: StackState, stack: Stack, sink: LineSink) -> None:
    lines = [
        "the fleet is up",
        f"  API     {state.api_url}  (reference: {state.api_url}/docs)",
        *_console_lines(state, stack),
        *_telegram_lines(stack),
        f"  Flower  {state.flower_url}  (user {FLOWER_USER}; password: {stack.flower_password_hint()})",
        f"  key     {stack.key_file}",
    ]
    if state.model == "local":
        lines.append("  model   a stand-in on loopback: set ANTHROPIC_API_KEY for real answers")
    lines += ["  try     nova chat", "  stop    Ctrl-C"]
    for line in lines:
        sink.say(line)


def _telegram_lines(stack: Stack) -> list[str]:
    """Return how many bots are served, and for how many people."""
    bots, people = stack.telegram_bots, stack.telegram_people
    if not bots:
        return []
    who = (
        f"for {people} {'person' if people == 1 else 'people'}"
        if people
        else "which refuses everyone, with their id for NOVA_TELEGRAM__USERS"
    )
    return [f"  Telegram {bots} {'bot' if bots == 1 else 'bots'}, {who}"]


def _console_lines(state: StackState, stack: Stack) -> list[str]:
    """Return the console's address; on a terminal, which no log keeps, as a one-time login."""
    if state.console_url is None:
        return []
    if not sys.stdout.isatty():
        return [f"  Console {state.console_url}  (a one-time login: `nova console --login` on a terminal)"]
    link = stack.console_login()
    return [f"  Console {link}  (signs in once, within 15 minutes)" if link else f"  Console {state.console_url}"]
