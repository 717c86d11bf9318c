"""Commands that are declared: their options are parameters of the client, and they print as others do."""

from __future__ import annotations

import importlib
import inspect
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer

from nova_workers.base.errors import NotFound
from nova_workers.cli.app import COMMANDS
from nova_workers.cli.command import Session
from nova_workers.cli.resources import Listing, end_each
from nova_workers.cli.terminal.output import Output
from nova_workers.client import NovaClient


def _listings() -> Iterator[tuple[str, Listing[Any]]]:
    for name in dict.fromkeys(entry.module for entry in COMMANDS):
        apps: list[typer.Typer] = [importlib.import_module(name).app]
        while apps:
            app = apps.pop()
            apps += [each.typer_instance for each in app.registered_groups if each.typer_instance is not None]
            for command in app.registered_commands:
                body = getattr(command.callback, "__wrapped__", None)
                if isinstance(body, Listing):
                    yield f"{name} {command.name}", body


def test_each_filter_of_a_list_is_a_parameter_of_the_client() -> None:
    client = NovaClient("http://127.0.0.1:1", None)
    listings = list(_listings())
    assert len(listings) > 15
    for name, listing in listings:
        method = inspect.signature(listing.call(client))
        ids = [] if listing.of is None else ["an_id"]
        sent = {each.sent_as or option: None for option, each in listing.filters.items()}
        try:
            method.bind(*ids, **sent, limit=1, cursor=None)
        except TypeError as error:
            pytest.fail(f"{name}: {error}")


@dataclass
class _Ended:
    ids: list[str] = field(default_factory=list[str])

    async def __call__(self, id: str) -> None:
        if id == "none":
            raise NotFound("There is none.")
        self.ids.append(id)


def _session(*, json_mode: bool) -> tuple[Session, io.StringIO]:
    stdout = io.StringIO()
    out = Output(json_mode=json_mode, stdout=stdout)
    nothing: Any = None
    return Session(nothing, out, nothing, nothing), stdout


async def test_each_thing_that_was_ended_is_named_though_a_later_one_is_refused() -> None:
    session, stdout = _session(json_mode=False)
    ended = _Ended()
    with pytest.raises(NotFound):
        await end_each(session, ["a", "b", "none", "c"], ended, "deleted")
    assert ended.ids == ["a", "b"]
    assert stdout.getvalue() == "deleted a\ndeleted b\n"


async def test_what_was_ended_is_one_document() -> None:
    session, stdout = _session(json_mode=True)
    await end_each(session, ["a", "b"], _Ended(), "deleted")
    assert json.loads(stdout.getvalue()) == {"deleted": ["a", "b"]}
