"""`nova channels`: replace this process with one that serves an inbound channel."""

import sys
from typing import Annotated

import typer

from nova_workers.base.config import load_settings
from nova_workers.cli.command import ApiKeyOption, ApiUrlOption
from nova_workers.cli.operations.processes import become_part
from nova_workers.cli.target import find_target

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Let people write to agents from a chat, a mailbox or a program.",
)


@app.callback()
def _group() -> None:
    pass


@app.command("pipe")
def pipe(
    *,
    allow: Annotated[
        list[str], typer.Option("--allow", metavar="SENDER", help="Who may write; * permits everyone. May be repeated.")
    ],
    agent: Annotated[str, typer.Option(help="The agent of new conversations.")] = "nova",
    name: Annotated[
        str, typer.Option(help="The channel's name, which its threads and the prompt have. Never change it.")
    ] = "pipe",
    stream: Annotated[bool, typer.Option("--stream", help="Write partial answers too.")] = False,
    api_url: ApiUrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Serve a program: updates are JSON lines on stdin, replies are JSON lines on stdout.

    It ends with stdin, once each run has ended or waits for a person.
    """
    command = ["pipe", "--agent", agent, "--name", name]
    command += [part for sender in allow for part in ("--allow", sender)]
    if stream:
        command.append("--stream")
    _become_channel(command, api_url=api_url, api_key=api_key)


@app.command("telegram")
def telegram(api_url: ApiUrlOption = None, api_key: ApiKeyOption = None) -> None:
    """Serve the Telegram bots that NOVA_TELEGRAM__TOKEN and NOVA_TELEGRAM__BOTS name. Several processes are safe."""
    _become_channel(["telegram"], api_url=api_url, api_key=api_key)


def _become_channel(arguments: list[str], *, api_url: str | None, api_key: str | None) -> None:
    settings = load_settings()
    target = find_target(settings, api_url=api_url, api_key=api_key)
    environment = {"NOVA_API_URL": target.url}
    if target.api_key is not None:
        environment["NOVA_API_KEY"] = target.api_key
    become_part("channel", [sys.executable, "-m", "nova_workers.channels", *arguments], environment, settings)
