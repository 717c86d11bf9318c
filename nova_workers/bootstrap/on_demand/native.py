"""The native tools of a worker."""

from nova_workers.base.config import Settings
from nova_workers.base.confined import PrivateFiles
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.domain.tool_policy.rules.pages import WebPages
from nova_workers.engines.native import NativeTools, WebSearchSettings


def native_tools(parts: EngineParts) -> NativeTools:
    """Return the tools that all engines on the turn loop share."""
    tools = parts.settings.tools

    def make() -> NativeTools:
        return NativeTools(
            fetcher=fetcher(parts.settings),
            shell=parts.shell,
            web_search=WebSearchSettings(max_uses=tools.web_search_max_uses) if tools.web_search else None,
            private=PrivateFiles(parts.settings.home, parts.settings.workspace_root),
        )

    return parts.shared(NativeTools, make)


def fetcher(settings: Settings) -> WebPages:
    """Return the client that fetches pages for agents."""
    tools = settings.tools
    rules = OutboundRules(
        ports=tools.fetch_ports,
        allow_hosts=tools.fetch_allow_hosts,
        max_redirects=tools.fetch_max_redirects,
        max_bytes=tools.fetch_max_bytes,
        timeout_s=tools.fetch_timeout_s,
    )
    return WebPages(Outbound(rules))
