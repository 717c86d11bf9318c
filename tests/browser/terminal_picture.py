"""The screen of `nova chat` as a page, for a picture of it: tmux knows what the terminal shows."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.browser.harness import Site
from tests.support.waiting import until

_COLUMNS, _LINES = 92, 29
_PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; width: fit-content; background: {background}; color: {foreground} }}
pre {{ margin: 0; padding: 20px 24px; font: 15px/1.35 "DejaVu Sans Mono", monospace }}
{stylesheet}
</style><pre>{code}</pre>"""


def missing() -> str | None:
    """Return why there can be no such picture here; None if there can."""
    return None if shutil.which("tmux") else "tmux is not on PATH"


async def terminal_page(nova: Site) -> str:
    """Ask an agent of the seeded fleet in a terminal; return its screen as HTML."""
    screen = await _screen_of_chat(nova)
    recorder = Console(record=True, width=_COLUMNS, file=StringIO())
    recorder.print(Text.from_ansi(screen))
    return recorder.export_html(theme=MONOKAI, code_format=_PAGE)


async def _screen_of_chat(nova: Site) -> str:
    """Return the screen with its escape sequences, after one question."""
    command = shlex.join((sys.executable, "-m", "nova_workers.cli", "chat", "--agent", "analyst"))
    env = {**os.environ, "NOVA_API_URL": nova.api_url, "NOVA_API_KEY": nova.api_key, "COLORTERM": "truecolor"}
    with tempfile.TemporaryDirectory(prefix="nova-tmux-") as folder:

        async def tmux(*arguments: str) -> str:
            process = await asyncio.create_subprocess_exec(
                *("tmux", "-S", str(Path(folder, "socket")), "-f", os.devnull, *arguments),
                env=env,
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            return output.decode()

        async def shows(text: str) -> None:
            async def is_there() -> bool:
                return text in await tmux("capture-pane", "-p")

            await until(is_there, f"{text!r} on the terminal")

        await tmux("new-session", "-d", "-x", str(_COLUMNS), "-y", str(_LINES), command)
        try:
            await shows("\n>")
            await tmux("send-keys", "How did we do this week?", "Enter")
            # The last line of a turn has its cost.
            await shows(" · $")
            return (await tmux("capture-pane", "-p", "-e", "-N")).rstrip()
        finally:
            await tmux("kill-server")
