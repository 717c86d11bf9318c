# Generated from nova_workers/client/resources/pairings.py by `make format`: change that file instead.
"""``/v1/pairings``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.pairings import PairingAnswer, PairingConfirm, PairingRequest, PairingView


class Pairings:
    """``/v1/pairings``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def ask(self, request: PairingRequest) -> PairingAnswer:
        """Return whether a person of a channel may write, with a new code if not."""
        return self._transport.fetch(PairingAnswer, "POST", "/v1/pairings", body=request)

    def confirm(self, code: str) -> PairingView:
        """Let the person with this code write; `NotFound` if it has expired."""
        return self._transport.fetch(PairingView, "POST", "/v1/pairings/confirm", body=PairingConfirm(code=code))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[PairingView]:
        """Return a page of the people who may write by a code, and of those who ask to."""
        return self._transport.fetch(
            Page[PairingView], "GET", "/v1/pairings", params={"limit": limit, "cursor": cursor}
        )

    def end(self, pairing_id: str) -> None:
        """Take the right to write from a person."""
        self._transport.send("DELETE", f"/v1/pairings/{pairing_id}")
