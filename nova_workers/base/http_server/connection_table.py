"""Which connections a process has, whose they are, and which one ends when there is room for no more.

A connection is proven once one of its requests had a valid key or session. Clients without one can fill the table, and
keep no other out of it: connections that are not proven and wait for their client (for a head, a body, the next
request) end first, those of the address that has most of them before others, oldest first; then idle ones of proven
clients. Only where all are busy with requests is a new one refused. Without a key nothing keeps a connection busy for
long.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from starlette.types import Scope

from nova_workers.base.http_server.errors import TooManyConnections

PROVE: Final = "nova.prove_connection"
"""The key of the function, in the scope of a request, that marks its connection as proven."""

_MANY_CLIENTS: Final = ""
"""The group of what carries requests of many clients: a trusted proxy, or a Unix socket. It has no share."""


Standing = Literal["waiting", "idle", "busy", "closed"]


@dataclass(slots=True, eq=False)
class OpenConnection:
    """One connection.

    Attributes:
        end: Ends it at once.
        is_shared: It carries requests of many clients, so that each request states whose it is.
        group: The address that it counts for.
        is_proven: A request of it had a valid key; of a shared one the present request.
        standing: What it is when there is room for no more: `waiting` for a client that is not proven, `idle` between
            requests, `busy`.
    """

    end: Callable[[], None]
    is_shared: bool
    group: str = _MANY_CLIENTS
    is_proven: bool = False
    standing: Standing = "waiting"


class ConnectionTable:
    """All connections of this process."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open = 0
        self._by_group: Counter[str] = Counter()
        # By group; each in the order in which the waiting began.
        self._waiting: dict[str, dict[OpenConnection, None]] = {}
        self._idle: dict[OpenConnection, None] = {}

    def open(self, group: str | None, end: Callable[[], None]) -> OpenConnection:
        """Add a connection, and end another where there is room for no more.

        Args:
            group: The address that it counts for; None if it carries requests of many clients.
            end: Ends it at once.

        Raises:
            TooManyConnections: The address, or all together, have too many, all of them busy.
        """
        opened = OpenConnection(end, is_shared=group is None)
        self._make_room_in(group or _MANY_CLIENTS, None)
        if self._open >= self._most:
            self._end_one()
        self._open += 1
        opened.group = group or _MANY_CLIENTS
        self._by_group[opened.group] += 1
        self._stand(opened, "waiting")
        return opened

    def state(self, connection: OpenConnection, group: str) -> None:
        """Count a shared connection for the address that its request states, until the answer.

        Raises:
            TooManyConnections: The address has too many, all of them busy.
        """
        if connection.standing == "closed":
            return
        self._make_room_in(group, connection)
        self._leave(connection)
        self._count_for(connection, group)
        self._stand(connection, "waiting")

    def receive(self, connection: OpenConnection) -> None:
        """Note that a request is here as a whole: from now on it waits for the server."""
        self._move(connection, "busy")

    def prove(self, connection: OpenConnection) -> None:
        """Note that its request has a valid key."""
        connection.is_proven = True
        self._move(connection, "busy")

    def rest(self, connection: OpenConnection) -> None:
        """Note that its requests are answered."""
        if connection.is_shared and connection.standing != "closed":
            self._leave(connection)
            self._count_for(connection, _MANY_CLIENTS)
            connection.is_proven = False
            self._stand(connection, "idle")
        else:
            self._move(connection, "idle" if connection.is_proven else "waiting")

    def wake(self, connection: OpenConnection) -> None:
        """Note that a request begins: that of a shared connection may be of any client."""
        if connection.standing == "idle":
            self._move(connection, "busy" if connection.is_proven else "waiting")

    def close(self, connection: OpenConnection) -> None:
        """Remove a connection that ended; one that was ended for another is removed already."""
        if connection.standing == "closed":
            return
        self._leave(connection)
        connection.standing = "closed"
        self._open -= 1
        self._uncount(connection)

    def _make_room_in(self, group: str, connection: OpenConnection | None) -> None:
        """End the connection that waits longest of an address that has its share."""
        if not group or self._by_group[group] < self._most_of_one or (connection and connection.group == group):
            return
        oldest = next(iter(self._waiting.get(group, ())), None)
        if oldest is None:
            raise TooManyConnections(
                f"Your address has {self._most_of_one} open connections, the most that it may have. Close some. The "
                "operator sets the limit with NOVA_API__MAX_CONNECTIONS_PER_ADDRESS.",
                limit=self._most_of_one,
            )
        self._end(oldest)

    def _end_one(self) -> None:
        """End the connection that is least worth keeping."""
        largest = max(self._waiting.values(), key=len, default=self._idle)
        victim = next(iter(largest), None)
        if victim is None:
            raise TooManyConnections(
                f"The server has {self._most} open connections, the most that it may have. Try again later. The "
                "operator sets the limit with NOVA_API__MAX_CONNECTIONS.",
                limit=self._most,
            )
        self._end(victim)

    def _end(self, connection: OpenConnection) -> None:
        self.close(connection)
        connection.end()

    def _count_for(self, connection: OpenConnection, group: str) -> None:
        self._uncount(connection)
        connection.group = group
        self._by_group[group] += 1

    def _uncount(self, connection: OpenConnection) -> None:
        self._by_group[connection.group] -= 1
        if not self._by_group[connection.group]:
            del self._by_group[connection.group]

    def _move(self, connection: OpenConnection, standing: Standing) -> None:
        if connection.standing not in {"closed", standing}:
            self._leave(connection)
            self._stand(connection, standing)

    def _stand(self, connection: OpenConnection, standing: Standing) -> None:
        connection.standing = standing
        if standing == "waiting":
            self._waiting.setdefault(connection.group, {})[connection] = None
        elif standing == "idle":
            self._idle[connection] = None

    def _leave(self, connection: OpenConnection) -> None:
        if connection.standing == "waiting":
            members = self._waiting[connection.group]
            del members[connection]
            if not members:
                del self._waiting[connection.group]
        elif connection.standing == "idle":
            del self._idle[connection]


def prove_connection(scope: Scope) -> None:
    """Note that a request has a valid key or session, so that its connection stays when the server has too many."""
    prove: Callable[[], None] | None = scope.get(PROVE)
    if prove is not None:
        prove()
