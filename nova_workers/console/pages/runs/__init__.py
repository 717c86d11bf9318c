"""Runs: the list with its filters, what is done with many, and one run."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.runs import canceling, details, listing, saved, sending, table, taking

PAGE = PageModule(
    routes=(
        Route("/runs", listing.show),
        Route("/runs/cancel", canceling.confirm, methods=["GET"]),
        Route("/runs/cancel", canceling.execute, methods=["POST"]),
        Route("/runs/send-again", sending.confirm, methods=["GET"]),
        Route("/runs/send-again", sending.execute, methods=["POST"]),
        Route("/runs/to-dataset", taking.show, methods=["GET"]),
        Route("/runs/to-dataset", taking.execute, methods=["POST"]),
        Route("/runs/lists", saved.save, methods=["POST"]),
        Route("/runs/lists/{list_id:id}/delete", saved.delete, methods=["POST"]),
        Route("/runs.csv", table.download),
        Route("/runs/{run:id}", details.show),
        Route("/runs/{run:id}/stream", details.follow),
        Route("/runs/{run:id}/raw", details.raw),
        Route("/runs/{run:id}/rate", details.rate, methods=["POST"]),
        Route("/runs/{run:id}/try-again", details.try_again, methods=["POST"]),
        Route("/runs/{run:id}/kick", details.kick, methods=["POST"]),
        Route("/runs/{run:id}/cancel", details.cancel, methods=["POST"]),
        Route("/runs/{run:id}/answer", details.answer, methods=["POST"]),
        Route("/runs/{run:id}/retry", details.retry, methods=["POST"]),
        Route("/runs/{run:id}/fork", details.fork, methods=["POST"]),
    ),
    nav=(NavEntry("Work", "Runs", "/runs", "runs", key="r", id_prefix="run_", scope="runs:read", main=3),),
)
