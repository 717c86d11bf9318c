"""The files that an agent sent in a conversation: each is shown where its tool call names it."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.console.chat.messages import IMAGES
from nova_workers.contracts.content import text_of
from nova_workers.contracts.deliveries import SentFileView
from nova_workers.contracts.http.wire import ToolCallView, TurnView

_FILE_ID = re.compile(r"\bfile_[0-9A-HJKMNP-TV-Z]{26}\b")
_MOST = 200
"""Most files of a thread that are looked through, the newest."""


class SentFile(NamedTuple):
    """A file, and whether it is an image that a page shows itself."""

    view: SentFileView
    is_image: bool


async def load_files(client: NovaClient, turns: Iterable[TurnView]) -> Mapping[str, SentFile]:
    """Return the files that tool calls of these turns name, by id; none for a key that may not read files."""
    threads = {turn.thread_id for turn in turns if any(_named(call) for call in turn.tool_calls)}
    pages = await asyncio.gather(
        *(if_allowed(client.files.list(thread_id=thread_id, limit=_MOST), None) for thread_id in sorted(threads))
    )
    files = (file for page in pages if page is not None for file in page.items)
    return {file.id: SentFile(file, file.media_type in IMAGES) for file in files}


def files_of_call(call: ToolCallView, files: Mapping[str, SentFile]) -> tuple[SentFile, ...]:
    """Return the files of the conversation that the result of a call names, in its order."""
    return tuple(files[file_id] for file_id in _named(call) if file_id in files)


def _named(call: ToolCallView) -> list[str]:
    return list(dict.fromkeys(_FILE_ID.findall(text_of(tuple(call.result or ())))))
