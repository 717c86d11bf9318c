"""The process's connections to MCP servers."""

from urllib.parse import urlsplit

import httpx2

from nova_workers.base.config import Settings
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.shell_sandbox import NoSandbox


def connections(parts: EngineParts) -> ConnectionPool:
    """Return the connections that all engines share."""

    def make() -> ConnectionPool:
        return ConnectionPool(
            start_timeout_s=parts.settings.tools.mcp_start_timeout_s,
            make_transport=_mcp_guard(parts.settings).transport,
            sandbox=parts.shell.enclosing or NoSandbox(parts.shell.why_none),
        )

    return parts.shared(ConnectionPool, make)


def _mcp_guard(settings: Settings) -> Outbound:
    """Return the guard between agents' configured MCP servers and the operator's network."""
    tools = settings.tools
    browser = urlsplit(tools.browser_command or "")
    # A browser server given by URL is configured by the operator, so it is allowed.
    admitted = (browser.netloc,) if browser.scheme in ("http", "https") else ()
    rules = OutboundRules(ports=tools.fetch_ports, allow_hosts=(*tools.mcp_allow_hosts, *admitted))
    # Now, in the thread that loads an engine: connections are made on the event loop.
    return Outbound(rules, verify=httpx2.create_ssl_context(trust_env=False))
