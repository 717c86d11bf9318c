"""What is beside a conversation: its forks, and the files that its agent sent."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.console.chat.tree import Drawing, Switches, draw_tree, switches_of
from nova_workers.contracts.deliveries import SentFileView

_MOST_FILES = 30


class Around(NamedTuple):
    """The tree of forks, None without one; the newest files; and the switches between turns."""

    drawing: Drawing | None
    files: Sequence[SentFileView]
    switches: Switches


async def load_around(client: NovaClient, thread_id: str) -> Around:
    """Return the forks and files of a conversation; no files for a key that may not read them."""
    tree, files = await asyncio.gather(
        client.threads.forks(thread_id),
        if_allowed(client.files.list(thread_id=thread_id, limit=_MOST_FILES), None),
    )
    return Around(draw_tree(tree, thread_id), files.items if files else (), switches_of(tree))
