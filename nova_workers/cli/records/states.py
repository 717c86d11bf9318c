"""`nova threads state`: read and change the state document of a thread."""

import json
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.text_input import read_text
from nova_workers.contracts.http.thread_states import ThreadStatePatch, ThreadStateReplace, ThreadStateView

app = group("Read and change a thread's state document, which its agent reads and changes too.")

ThreadArgument = Annotated[str, typer.Argument(help="The thread's id.")]


@remote(app, "get")
async def get(session: Session, thread: ThreadArgument) -> None:
    """Show the document; its version goes to stderr."""
    _show(session, await session.client.threads.state(thread))


@remote(app, "set")
async def change(
    session: Session,
    thread: ThreadArgument,
    document: Annotated[str, typer.Argument(help="A JSON object; @FILE reads a file, - reads stdin.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="A JSON Merge Patch: change these fields, null removes one.")
    ] = False,
    version: Annotated[
        int | None,
        typer.Option(min=0, help="Only if the document has this version. Default: its own of now; with --merge any."),
    ] = None,
) -> None:
    """Replace the document, or change fields of it."""
    given = _object(read_text(document))
    if merge:
        patch = build(ThreadStatePatch, {"patch": given, "version": version})
        _show(session, await session.client.threads.patch_state(thread, patch))
        return
    if version is None:
        version = (await session.client.threads.state(thread)).version
    whole = build(ThreadStateReplace, {"state": given, "version": version})
    _show(session, await session.client.threads.replace_state(thread, whole))


def _object(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InvalidInput: It is none.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"The document is no JSON: {error}.", field="document") from error
    if not isinstance(found, dict):
        raise InvalidInput("The document must be a JSON object, such as '{\"step\": 1}'.", field="document")
    return found


def _show(session: Session, found: ThreadStateView) -> None:
    document = json.dumps(found.state, ensure_ascii=False, indent=2)
    session.out.done(found, document, about=f"version {found.version}")
