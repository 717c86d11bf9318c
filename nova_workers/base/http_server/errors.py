"""Refusals of a connection, before an application has its request."""

from nova_workers.base.errors import LimitExceeded, Rejected, TooManyRequests


class MalformedHttp(Rejected):
    """The bytes are no request of HTTP/1.1."""

    code = "malformed_request"


class HeadTooLarge(LimitExceeded):
    """The target and the headers have more bytes than the server reads."""

    code = "head_too_large"


class RequestTooSlow(Rejected):
    """The head or the body did not arrive within its time."""

    code = "request_too_slow"


class UnknownHost(Rejected):
    """The request is for a host that is no name of this server."""

    code = "unknown_host"


class TooManyConnections(TooManyRequests):
    """The address, or all clients together, have too many open connections."""

    code = "too_many_connections"
