"""The audit log: what was changed, by whom and from where."""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.runs.filters import read_moment
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.overview.audit_words import ACTIONS, describe_action

_PLACES: Final[Mapping[str, str]] = {
    "agent": "/agents/",
    "note": "/notes/",
    "orchestration": "/orchestrations/",
    "run": "/runs/",
    "skill": "/skills/",
    "task": "/tasks/",
    "thread": "/chat/",
    "trigger": "/triggers/",
    "webhook": "/webhooks/",
}
"""Where the console shows a thing, by its kind."""


async def show_list(request: Request) -> Response:
    """Show a page of records, newest first."""
    which = {name: filter_of(request, name) for name in ("actor", "action", "target_kind", "target")}
    since = read_moment("since", filter_of(request, "since"))
    until = read_moment("until", filter_of(request, "until"))
    page = await client_of(request).audit.list(
        **which, since=since, until=until, limit=PAGE_SIZE, cursor=cursor_of(request)
    )
    return render(
        request,
        "audit/list.html",
        events=page.items,
        which=which,
        since=since,
        until=until,
        places=_PLACES,
        actions=_actions(which["action"]),
        pager=pager(request, page),
    )


def _actions(chosen: str | None) -> list[tuple[str, str]]:
    """Return the actions to filter by, as codes with their words in the order of these."""
    codes = {*ACTIONS, *([chosen] if chosen else [])}
    return sorted(((code, describe_action(code)) for code in codes), key=lambda action: action[1])


PAGE = PageModule(
    routes=(Route("/audit", show_list),),
    nav=(NavEntry("Account", "Audit log", "/audit", "audit", scope="keys"),),
)
