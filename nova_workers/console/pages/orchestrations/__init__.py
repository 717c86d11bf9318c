"""Orchestrations: the list, one of them, and their configuration with its models."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.orchestrations import configuration, details, listing

PAGE = PageModule(
    routes=(
        Route("/orchestrations", listing.show),
        Route("/orchestrations/new", listing.new, methods=["GET", "POST"]),
        Route("/orchestrations/configuration", configuration.show, methods=["GET", "POST"]),
        Route("/orchestrations/configuration/{version:int}", configuration.show_version),
        Route("/orchestrations/models", configuration.show_models),
        Route("/orchestrations/{orchestration:id}", details.show),
        Route("/orchestrations/{orchestration:id}/stream", details.follow),
        Route("/orchestrations/{orchestration:id}/kill", details.kill, methods=["POST"]),
        Route("/orchestrations/{orchestration:id}/continue", details.go_on, methods=["POST"]),
        Route("/orchestrations/{orchestration:id}/agents/{agent:id}", details.history),
        Route("/orchestrations/{orchestration:id}/agents/{agent:id}/prompt", details.prompt, methods=["POST"]),
    ),
    nav=(
        NavEntry(
            "Work", "Orchestrations", "/orchestrations", "orchestrations", key="o", id_prefix="orc_", scope="runs:read"
        ),
    ),
)
