"""What requests to external servers may reach. Without the client, for those who check rules and send nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutboundRules:
    """What may be reached, and in which bounds.

    Attributes:
        ports: Ports that may be connected to.
        allow_hosts: ``host`` or ``host:port`` that may be reached whatever its address and port: for a server of the
            operator's own, or of a test. Names are compared as written, and nothing but the exact name counts.
        max_redirects: How many are followed.
        max_bytes: Most that is read of a response, and most that it may unpack to.
        timeout_s: Most time of a request, with all its redirects and its body.
    """

    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    allow_hosts: tuple[str, ...] = ()
    max_redirects: int = 5
    max_bytes: int = 2_000_000
    timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    user_agent: str = "nova-workers"

    def admits(self, host: str, port: int) -> bool:
        """Return whether the operator named this host."""
        return host in self.allow_hosts or f"{host}:{port}" in self.allow_hosts
