"""The refusal of a request."""


class Refused(Exception):
    """A request that the provider answers with an error of the client."""

    def __init__(
        self, message: str, *, status: int = 400, type: str = "invalid_request_error", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.code = code


def require(fulfilled: object, message: str) -> None:
    """Refuse the request with `message` unless the condition is fulfilled."""
    if not fulfilled:
        raise Refused(message)
