"""The SDK's stream of events as plain JSON: its types are those of OpenAI's events, to which others do not keep."""

from collections.abc import AsyncIterator
from typing import Self

from openai import AsyncStream
from openai._streaming import ServerSentEvent


class WireFailed(Exception):
    """The SDK raised an exception: the connection, the server or the form of its answer failed, and not our code.

    Attributes:
        error: The SDK's exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class JsonStream(AsyncStream[object]):
    """A stream of events, each any JSON.

    Attributes:
        is_marked: Whether it had the mark ``[DONE]``: a connection that closes may have broken off.
    """

    is_marked = False

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        """Return the next event.

        Raises:
            WireFailed: There is none.
        """
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:
            raise WireFailed(error) from error

    async def _iter_events(self) -> AsyncIterator[ServerSentEvent]:
        async for event in super()._iter_events():
            self.is_marked = self.is_marked or event.data.startswith("[DONE]")
            yield event

    async def __aenter__(self) -> Self:
        return self
