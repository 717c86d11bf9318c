"""Agents: the list, the form over the whole configuration, versions, a try, and what happens to an agent as a whole."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.agents import editing, listing, managing, rollouts, trying, versions

PAGE = PageModule(
    routes=(
        Route("/agents", listing.show),
        # No agent's id begins with a tilde.
        Route("/agents/~new", editing.show_new, methods=["GET"]),
        Route("/agents/~new", editing.create, methods=["POST"]),
        Route("/agents/{agent:id}", editing.show, methods=["GET"]),
        Route("/agents/{agent:id}", editing.save, methods=["POST"]),
        Route("/agents/{agent:id}/json", editing.show_json, methods=["GET"]),
        Route("/agents/{agent:id}/json", editing.save_json, methods=["POST"]),
        Route("/agents/{agent:id}/versions", versions.show_list),
        Route("/agents/{agent:id}/versions/{version:int}", versions.show),
        Route("/agents/{agent:id}/compare", versions.compare),
        Route("/agents/{agent:id}/rollback", versions.roll_back, methods=["POST"]),
        Route("/agents/{agent:id}/rollouts", rollouts.show_list),
        Route("/agents/{agent:id}/rollouts/~new", rollouts.new, methods=["GET", "POST"]),
        Route("/agents/{agent:id}/rollouts/{rollout:id}", rollouts.show),
        Route("/agents/{agent:id}/rollouts/{rollout:id}/advance", rollouts.advance, methods=["POST"]),
        Route("/agents/{agent:id}/rollouts/{rollout:id}/stop", rollouts.stop, methods=["POST"]),
        Route("/agents/{agent:id}/try", trying.show, methods=["GET"]),
        Route("/agents/{agent:id}/try", trying.send, methods=["POST"]),
        Route("/agents/{agent:id}/try/{run:id}/events", trying.follow),
        Route("/agents/{agent:id}/manage", managing.show),
        Route("/agents/{agent:id}/rename", managing.rename, methods=["POST"]),
        Route("/agents/{agent:id}/delete", managing.delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Agents", "/agents", "agents", key="a", scope="agents:read", main=5),),
)
