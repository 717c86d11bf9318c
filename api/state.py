"""The state of an API process: the services that bootstrap built, and the API's own parts."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from nova_workers.base.http_server.addresses import TrustedProxies
from nova_workers.bootstrap.api import ApiServices
from nova_workers.contracts.http.doors import DoorView

from .activity_cache import ActivityCache
from .guard.archives import ArchivePermits
from .guard.key_uses import KeyUses
from .guard.refusals import Refusals
from .guard.sign_ins import SignIns
from .key_cache import KeyCache
from .streaming.following import RunFollower
from .streaming.following_changes import ChangeFollower
from .streaming.following_trees import TreeFollower
from .streaming.run_watch import RunWatch
from .streaming.stream_permits import StreamPermits
from .streaming.waiting_orders import OrderFollower


@dataclass(frozen=True, slots=True)
class ApiState:
    """Everything a route may use."""

    services: ApiServices
    proxies: TrustedProxies
    keys: KeyCache
    key_uses: KeyUses
    refusals: Refusals
    sign_ins: SignIns
    activity: ActivityCache
    watch: RunWatch
    follower: RunFollower
    tree_follower: TreeFollower
    change_follower: ChangeFollower
    order_follower: OrderFollower
    order_watch: RunWatch
    permits: StreamPermits
    archives: ArchivePermits
    doors: tuple[DoorView, ...]


def state_of(request: Request) -> ApiState:
    """Return the state of the application that serves a request."""
    return request.app.state.nova


async def _state(request: Request) -> ApiState:
    return state_of(request)


State = Annotated[ApiState, Depends(_state)]


async def _load_capabilities(state: State) -> None:
    await state.services.capabilities.load()


CAPABILITIES: Any = Depends(_load_capabilities)
"""The dependency of a route that writes or describes agents: they are imported before its first request, beside other
requests."""
