"""Commands that are declared: what a kind of thing shows, and which call of the client a command makes.

A command with a rule of its own is a function, registered with `remote`; it shows its result with the same columns,
facts and `Output`.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Facts
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, Rows, show_page
from nova_workers.client.client import NovaClient
from nova_workers.contracts.bodies import Page

T = TypeVar("T", bound=BaseModel)

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Argument(NamedTuple):
    """The argument of a command that names a thing: its name and its annotation."""

    name: str
    annotation: Any

    @property
    def parameter(self) -> inspect.Parameter:
        """The parameter of the command."""
        return inspect.Parameter(self.name, _KEYWORD, annotation=self.annotation)


class Filter:
    """An option of a list, which is a parameter of the client's method.

    Args:
        help: What it selects.
        kind: The type of its value.
        sent_as: The method's parameter, if it has another name than the option.
        names: The option, if it is not called as the filter is.
        settings: Of the option, such as its bounds.
    """

    def __init__(
        self, help: str, kind: Any = str, *, sent_as: str = "", names: Sequence[str] = (), **settings: Any
    ) -> None:
        self.annotation = Annotated[kind | None, typer.Option(*names, help=help, **settings)]
        self.sent_as = sent_as


def group(help: str, *, lists: bool = False) -> typer.Typer:
    """Return an empty group of commands.

    Args:
        help: What it is for.
        lists: Whether it lists without a command: `nova inbox --kind note` is `nova inbox list --kind note`.
    """
    return typer.Typer(
        cls=_ListByDefault if lists else None,
        no_args_is_help=not lists,
        add_completion=False,
        # Typer's rich help imports a Markdown parser and a syntax highlighter.
        rich_markup_mode=None,
        help=help,
    )


class _ListByDefault(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_command(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, self._with_command(ctx, args))

    def _with_command(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            return ["list", *args]
        return args


@dataclass(frozen=True)
class Listing(Generic[T]):
    """The command of a list: a call of the client that returns a page, with filters, `--limit` and `--cursor`."""

    call: Callable[[NovaClient], Callable[..., Awaitable[Page[T]]]]
    rows: Rows[T]
    of: Argument | None
    filters: Mapping[str, Filter]

    async def __call__(self, session: Session, **given: Any) -> None:
        """Show a page."""
        ids = () if self.of is None else (given.pop(self.of.name),)
        sent = {self.filters[name].sent_as or name if name in self.filters else name: given[name] for name in given}
        show_page(session.out, await self.call(session.client)(*ids, **sent), self.rows)

    @property
    def __signature__(self) -> inspect.Signature:
        options = [
            inspect.Parameter(name, _KEYWORD, default=None, annotation=each.annotation)
            for name, each in self.filters.items()
        ]
        paging = [
            inspect.Parameter("limit", _KEYWORD, default=50, annotation=LimitOption),
            inspect.Parameter("cursor", _KEYWORD, default=None, annotation=CursorOption),
        ]
        return _signature([] if self.of is None else [self.of.parameter], [*options, *paging])


def listing(
    app: typer.Typer,
    help: str,
    call: Callable[[NovaClient], Callable[..., Awaitable[Page[T]]]],
    rows: Rows[T],
    *,
    name: str = "list",
    of: Argument | None = None,
    **filters: Filter,
) -> None:
    """Add a command that lists things.

    Args:
        app: The group.
        help: The command's help.
        call: The client's method, which takes the id of `of`, the filters, `limit` and `cursor`.
        rows: The columns.
        name: The command's name.
        of: The thing whose list it is.
        filters: By the name of their option.
    """
    remote(app, name, help=help)(Listing(call, rows, of, filters))


def action(
    app: typer.Typer,
    name: str,
    help: str,
    of: Argument,
    call: Callable[[NovaClient, Any], Awaitable[T]],
    facts: Callable[[T], Facts],
) -> None:
    """Add a command that makes one call for one thing, and shows what it returns."""

    async def act(session: Session, **given: Any) -> None:
        session.out.record(await call(session.client, given[of.name]), facts)

    act.__signature__ = _signature([of.parameter], [])  # pyright: ignore[reportFunctionMemberAccess] - `remote` reads it
    remote(app, name, help=help)(act)


def deletion(
    app: typer.Typer,
    help: str,
    things: str,
    call: Callable[[NovaClient], Callable[[str], Awaitable[object]]],
    *,
    name: str = "delete",
    done: str = "deleted",
    check: Callable[[str], None] | None = None,
    once: str = "",
) -> None:
    """Add a command that ends things, one after the other.

    Args:
        app: The group.
        help: The command's help.
        things: What they are called, and the help of the argument: ``notes: Ids of notes.``
        call: The client's method, which takes an id.
        name: The command's name.
        done: What each is afterwards.
        check: Refuses what cannot be an id, before any is ended.
        once: What the command was called before, which it answers to as well.
    """
    name_of_all, _, help_of_all = things.partition(": ")
    argument = Argument(name_of_all, Annotated[list[str], typer.Argument(help=help_of_all)])

    async def end(session: Session, **given: list[str]) -> None:
        ids = given[argument.name]
        if check is not None:
            for each in ids:
                check(each)
        await end_each(session, ids, call(session.client), done)

    end.__signature__ = _signature([argument.parameter], [])  # pyright: ignore[reportFunctionMemberAccess] - `remote` reads it
    remote(app, name, help=help)(end)
    if once:
        remote(app, once, help=help, hidden=True)(end)


async def end_each(session: Session, ids: Iterable[str], call: Callable[[str], Awaitable[object]], done: str) -> None:
    """End things one after the other, and say so after each, since a later one may be refused."""
    ended: list[str] = []
    for each in ids:
        await call(each)
        ended.append(each)
        if not session.out.json:
            session.out.text(f"{done} {each}")
    if session.out.json:
        session.out.document({done: ended})


def _signature(arguments: Iterable[inspect.Parameter], options: Iterable[inspect.Parameter]) -> inspect.Signature:
    session = inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY, annotation=Session)
    return inspect.Signature([session, *arguments, *options])
