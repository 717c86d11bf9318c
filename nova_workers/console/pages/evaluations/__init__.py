"""Evaluations: how versions of agents answer datasets; started, watched and canceled."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.evaluations import showing, starting

PAGE = PageModule(
    routes=(
        Route("/evaluations", showing.show_list),
        # No id begins with a tilde.
        Route("/evaluations/~new", starting.show, methods=["GET"]),
        Route("/evaluations/~new", starting.start, methods=["POST"]),
        Route("/evaluations/{evaluation:id}", showing.show),
        Route("/evaluations/{evaluation:id}/cancel", showing.cancel, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Evaluations", "/evaluations", "evaluations", id_prefix="evl_", scope="runs:read"),),
)
