"""The typed client of the HTTP API, async and sync: the one way in which commands, console and channels reach a fleet.

Importing it loads no server, no engine and no model; see docs/client.md.
"""

from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.client.retry import Retry
from nova_workers.client.sync.client import SyncNovaClient
from nova_workers.client.sync.paging import sync_iterate

__all__ = ["NovaClient", "Retry", "SyncNovaClient", "iterate", "sync_iterate"]
