"""Asks the fleet whether a stranger may write, by a code that an operator confirmed."""

import time
from collections.abc import Callable

from nova_workers.base.errors import Forbidden
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.delivering import until_answered
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.pairings import PairingRequest

_PAIRED_FOR_S = 60.0
"""A person whose pairing was found is not asked for again this long: so fast does its end take effect."""
_STRANGER_FOR_S = 3.0
_MAX_STRANGERS = 1_000
"""Above it no further stranger is asked for, until the first may be again: memory and requests stay bounded."""
_MAX_NAME_CHARS = 200
_PATIENCE = Retry(base_s=0.5, max_s=30.0)


class Pairing:
    """Extends the allow-list of one channel by people whose codes were confirmed."""

    def __init__(
        self,
        client: NovaClient,
        channel: str,
        allowed: AllowList,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare it.

        Args:
            client: Of the tenant. Its key needs the scope `channels`.
            channel: The channel's name.
            allowed: Permits a paired person for a minute, until it is asked for again.
            clock_s: Tells when that is over.
        """
        self._client = client
        self._channel = channel
        self._allowed = allowed
        self._clock_s = clock_s
        self._strangers_s: dict[str, float] = {}

    async def admit(self, sender: str, name: str, *, ask: bool) -> str | None:
        """Let the allow-list permit a sender that is paired.

        Args:
            sender: A person whom the allow-list does not permit.
            name: What the person calls itself, for the operator.
            ask: Whether it gets a code if it is not paired.

        Returns:
            A new code for the person; None if it is paired, has a valid code, or gets none.
        """
        if not self._should_ask_for(sender):
            return None
        # Names are what people type: without characters that a terminal would obey.
        shown = " ".join("".join(one if one.isprintable() else " " for one in name).split())[:_MAX_NAME_CHARS]
        request = PairingRequest(channel=self._channel, sender=sender, name=shown or None, ask=ask)
        try:
            # A person who may write is not refused while the API is away.
            answer = await until_answered(lambda: self._client.pairings.ask(request), self._channel, _PATIENCE)
        except Forbidden:
            return None
        if answer.paired:
            self._allowed.permit_for(sender, _PAIRED_FOR_S)
            self._strangers_s.pop(sender, None)
        return answer.code

    def _should_ask_for(self, sender: str) -> bool:
        now_s = self._clock_s()
        self._strangers_s = {known: until_s for known, until_s in self._strangers_s.items() if until_s > now_s}
        if sender in self._strangers_s or len(self._strangers_s) >= _MAX_STRANGERS:
            return False
        self._strangers_s[sender] = now_s + _STRANGER_FOR_S
        return True
