"""Home: what needs a person, what runs and waits now, today's cost, and plots of what happened."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.home import overview

PAGE = PageModule(
    routes=(Route("/", overview.show),),
    nav=(NavEntry("Work", "Home", "/", "home", key="h", main=1),),
)
