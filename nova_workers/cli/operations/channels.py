"""`nova channels`: replace this process with one that serves an inbound channel."""

import sys
from typing import Annotated

import typer

from nova_workers.base.config import load_settings
from nova_workers.cli.command import ApiKeyOption, ApiUrlOption, Session, remote
from nova_workers.cli.operations.processes import become_part
from nova_workers.cli.resources import deletion, group, listing
from nova_workers.cli.target import find_target
from nova_workers.cli.terminal.paging import Column, Rows, show_page
from nova_workers.contracts.http.inbound_channels import InboundChannelView
from nova_workers.contracts.http.pairings import PairingView

app = group("Let people write to agents from a chat, a mailbox or a program.")

_PEOPLE = Rows[PairingView](
    "No person has asked to write to a channel.",
    Column("id", lambda pairing: pairing.id),
    Column("channel", lambda pairing: pairing.channel),
    Column("person", lambda pairing: pairing.sender),
    Column("name", lambda pairing: pairing.name, "text"),
    Column("asked", lambda pairing: pairing.asked_at, "spare"),
    Column("may write", lambda pairing: pairing.paired_at or "no: its code is not confirmed", "text"),
)

_CHANNELS = Rows[InboundChannelView](
    "No process has served a channel that has a lease.",
    Column("name", lambda channel: channel.name),
    Column("served by", lambda channel: channel.holder if channel.is_served else "no process", "spare"),
    Column("state", lambda channel: "works" if channel.error is None else "rests"),
    Column("since", lambda channel: channel.failing_since, "spare"),
    Column("next try", lambda channel: channel.next_try_at),
    Column("error", lambda channel: channel.error, "text"),
)


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


@remote(app, "pair")
async def pair(
    session: Session, code: Annotated[str, typer.Argument(help="The code that the person got from the bot.")]
) -> None:
    """Let a person write to a channel, by the code that the person got there."""
    made = await session.client.pairings.confirm(code)
    session.out.done(made, made.id, about=f"{made.name or made.sender} may write to {made.channel} now.")


listing(
    app,
    "List the people who may write to channels by a code, and those who ask to.",
    lambda nova: nova.pairings.list,
    _PEOPLE,
    name="people",
)

deletion(
    app,
    "Take the right to write from people. Channels heed it within a minute.",
    "pairings: Ids of pairings, see `nova channels people`.",
    lambda nova: nova.pairings.end,
    name="unpair",
    done="unpaired",
)


@remote(app, "list")
async def list_channels(session: Session) -> None:
    """List the channels that a process serves or has served, with the reason where one rests after failures."""
    show_page(session.out, await session.client.inbound_channels.list(), _CHANNELS)


@remote(app, "retry")
async def retry(
    session: Session, channel: Annotated[str, typer.Argument(help="Its name, see `nova channels list`.")]
) -> None:
    """Let a channel that rests after failures try now."""
    await session.client.inbound_channels.retry(channel)
    session.out.done({"retried": channel}, f"{channel} tries within seconds")


@app.command("run")
def run(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its entry point in an installed package.")],
    *,
    allow: Annotated[
        list[str], typer.Option("--allow", metavar="SENDER", help="Who may write; * permits everyone. May be repeated.")
    ],
    agent: Annotated[str, typer.Option(help="The agent of new conversations.")] = "nova",
    name: Annotated[
        str | None,
        typer.Option(help="The channel's name in the fleet, by default that of its entry point. Never change it."),
    ] = None,
    deliveries_to: Annotated[
        str | None,
        typer.Option(
            "--deliveries-to", metavar="CONVERSATION", help="Gets deliveries and questions of other runs, if any."
        ),
    ] = None,
    api_url: ApiUrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Serve a channel of an installed package. Several processes are safe: one of them serves it."""
    command = ["run", channel, "--agent", agent]
    command += [part for sender in allow for part in ("--allow", sender)]
    for option, value in (("--name", name), ("--deliveries-to", deliveries_to)):
        command += [] if value is None else [option, value]
    _become_channel(command, api_url=api_url, api_key=api_key)


def _become_channel(arguments: list[str], *, api_url: str | None, api_key: str | None) -> None:
    settings = load_settings()
    target = find_target(settings.home, api_url=api_url, api_key=api_key, with_session=False)
    environment = {"NOVA_API_URL": target.url}
    if target.api_key is not None:
        environment["NOVA_API_KEY"] = target.api_key
    become_part("channel", [sys.executable, "-m", "nova_workers.channels", *arguments], environment, settings)
