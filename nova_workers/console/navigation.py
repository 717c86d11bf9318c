"""What a page module declares: its routes, and its entries of the navigation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import BaseRoute

from nova_workers.base.errors import NotFound
from nova_workers.contracts.http.scopes import Scope, with_included

Group = Literal["Work", "Build", "Account", "Fleet"]

GROUPS: tuple[Group, ...] = ("Work", "Build", "Account", "Fleet")
"""The groups of the navigation, from the top."""


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A page that the navigation links to.

    Attributes:
        path: Its address, without a query. Pages below it mark the entry as current, too.
        icon: A name of `templates/icons.html`.
        key: The letter of its shortcut: ``g`` then this key.
        id_prefix: The prefix of ids whose page is ``<path>/<id>``, such as ``run_``: the palette goes there.
        scope: What a key needs to read the page; None where every key reads it.
        main: Its place among the entries that are always in view, from 1; None is below *More*.
    """

    group: Group
    title: str
    path: str
    icon: str
    key: str | None = None
    id_prefix: str | None = None
    scope: Scope | None = None
    main: int | None = None

    def is_current(self, path: str) -> bool:
        """Return whether a path is this page, or one below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


class Menu(NamedTuple):
    """The entries of the navigation that a key may read: those in view, and the groups below *More*."""

    main: Sequence[NavEntry]
    more: Sequence[tuple[Group, Sequence[NavEntry]]]

    @property
    def entries(self) -> list[NavEntry]:
        """All of them, from the top."""
        return [*self.main, *(entry for _, entries in self.more for entry in entries)]

    def is_below_more(self, path: str) -> bool:
        """Return whether a path is a page below *More*, which is unfolded then."""
        return any(entry.is_current(path) for _, entries in self.more for entry in entries)


def menu(entries: Sequence[NavEntry], scopes: Sequence[str] | None) -> Menu:
    """Return the entries that a key with these scopes may read; all entries where they are unknown."""
    has = None if scopes is None else with_included(scopes)
    shown = [entry for entry in entries if has is None or entry.scope is None or entry.scope in has]
    main = sorted((entry for entry in shown if entry.main is not None), key=lambda entry: entry.main or 0)
    more = [entry for entry in shown if entry.main is None]
    return Menu(main, [(group, own) for group in GROUPS if (own := [one for one in more if one.group == group])])


@dataclass(frozen=True, slots=True)
class PageModule:
    """One module of `nova_workers.console.pages`: a subject."""

    routes: tuple[BaseRoute, ...]
    nav: tuple[NavEntry, ...] = ()


class _IdConvertor(Convertor[str]):
    """Ids, names and slugs in addresses: what cannot change the path of the API's request that they go into."""

    regex = "[A-Za-z0-9_@~][A-Za-z0-9_.:@~-]*"

    def convert(self, value: str) -> str:
        """Return the id."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id."""
        return value


# Here, so that it is known before any page module makes its routes.
register_url_convertor("id", _IdConvertor())


def id_given(text: str | None) -> str | None:
    """Return an id from a query or a form; None if there is none.

    Raises:
        NotFound: It has not the form of an id, and could change the path of the API's request that it goes into.
    """
    if not text:
        return None
    if re.fullmatch(_IdConvertor.regex, text) is None:
        raise NotFound(f"There is no id {text!r}.", status=404)
    return text
