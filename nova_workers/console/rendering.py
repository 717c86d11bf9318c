"""Pages from templates: `render` for a page, `fragment` for a part of one, `see_other` after a form."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, cast
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from nova_workers.base.clock import Clock
from nova_workers.base.ids import new_id
from nova_workers.console.assets import Assets
from nova_workers.console.formats import NOTHING, filters
from nova_workers.console.local_times import ZONES, time_filters
from nova_workers.console.markdown import code_block, code_head, to_html
from nova_workers.console.names import known_agents, name_filters
from nova_workers.console.navigation import menu
from nova_workers.console.rights import may
from nova_workers.console.schedules import in_words
from nova_workers.console.state import session_of, state_of
from nova_workers.contracts.http.triggers import TriggerView

THEME_COOKIE = "nova_theme"
THEMES: Final = ("system", "light", "dark")
FLASH_COOKIE = "nova_flash"
_FLASH_S = 60
_FLASH_CHARS = 1_000
"""A cookie has room for 4 KiB."""

FlashKind = Literal["good", "warn", "bad"]


def build_templates(assets: Assets, clock: Clock) -> Environment:
    """Return the templates. What they print is escaped; a name that a page did not give is an error."""
    environment = Environment(
        loader=PackageLoader("nova_workers.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(filters(clock))
    environment.filters.update(time_filters(clock))
    environment.filters.update(name_filters())
    environment.filters.update(markdown=to_html, code=code_block, schedule=_schedule)
    # Jinja types them as its own functions.
    names = cast(dict[str, object], environment.globals)
    names["asset"] = assets.url
    names["code_head"] = code_head
    names["nothing"] = NOTHING
    names["zones"] = ZONES
    names["known_agents"] = known_agents
    names["may"] = may
    names["new_key"] = partial(new_id, "evt")
    return environment


def _schedule(trigger: TriggerView) -> str:
    words = in_words(trigger.kind, trigger.schedule)
    return words[:1].upper() + words[1:]


def render(request: Request, template: str, *, status: int = 200, **context: object) -> HTMLResponse:
    """Return a page: a template that extends ``layout.html``, with the values that it names.

    Beside `context`, every page has: `request`, `path`, `query` (parameters as a mapping), `session`, `flash`, `theme`.
    """
    state, session = state_of(request), session_of(request)
    sealed = request.cookies.get(FLASH_COOKIE)
    noted = None if sealed is None else state.sessions.open_text(sealed, lifetime_s=_FLASH_S)
    theme = request.cookies.get(THEME_COOKIE)
    page = HTMLResponse(
        state.templates.get_template(template).render(
            {
                "request": request,
                "path": request.url.path,
                "query": request.query_params,
                "session": session,
                "menu": None if session is None else menu(state.nav, session.scopes),
                "flash": None if noted is None else orjson.loads(noted),
                "theme": theme if theme in THEMES else "system",
                **context,
            }
        ),
        status_code=status,
    )
    if sealed is not None and not is_fragment(request):
        page.delete_cookie(FLASH_COOKIE, httponly=True, samesite="strict")
    return page


async def render_long(request: Request, template: str, *, status: int = 200, **context: object) -> HTMLResponse:
    """Return a page as `render` does, made in a thread: long answers take half a second, in which others want pages."""
    return await asyncio.to_thread(render, request, template, status=status, **context)


def fragment(request: Request, template: str, macro: str, /, *values: object, **named: object) -> Markup:
    """Return the markup that a template's macro makes of values: a part of a page, for `live.stream`."""
    module = state_of(request).templates.get_template(template).module
    return Markup(getattr(module, macro)(*values, **named))  # noqa: S704 - templates escape what they print


def is_fragment(request: Request) -> bool:
    """Return whether the page's own script asks, to renew a part of the page."""
    return "nova-fragment" in request.headers


def see_other(
    request: Request,
    path: str,
    *,
    flash: str | None = None,
    kind: FlashKind = "good",
    query: Mapping[str, str] | None = None,
) -> RedirectResponse:
    """Return the answer to a form that was carried out: go to a page, which shows `flash` once."""
    response = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, status_code=303)
    if flash is not None:
        note = orjson.dumps({"text": flash[:_FLASH_CHARS], "kind": kind}).decode()
        response.set_cookie(
            FLASH_COOKIE,
            state_of(request).sessions.seal_text(note),
            max_age=_FLASH_S,
            httponly=True,
            samesite="strict",
            secure=is_secure(request),
        )
    return response


def is_secure(request: Request) -> bool:
    """Return whether the person's browser uses https, to this process or to the proxy before it."""
    public_url = state_of(request).settings.public_url
    return (public_url or request.url.scheme).startswith("https")
