"""People at the help desk write to agents by files."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from nova_workers.base.errors import DeliveryFailed
from nova_workers.channels import InboundParts, Origin, Reply, Update

_log = logging.getLogger(__name__)


class FolderChannel:
    """A conversation by files: messages in ``in``, replies in ``out``. A message stays until it is done."""

    streams = False
    max_file_bytes = 0

    def __init__(self, name: str, folder: Path) -> None:
        """Make the folders."""
        self.name = name
        self._in, self._out = folder / "in", folder / "out"
        for path in (self._in, self._out):
            path.mkdir(parents=True, exist_ok=True)

    async def updates(self) -> AsyncIterator[Update]:
        """Look for files that are not taken yet."""
        seen: set[str] = set()
        while True:
            for path in sorted(self._in.glob("*.json")):
                if path.name not in seen:
                    seen.add(path.name)
                    try:
                        update = Update(id=path.stem, **json.loads(path.read_text("utf-8")))
                    except (ValueError, TypeError) as error:
                        _log.warning("%s is no message: %s", path, error)
                    else:
                        yield update
            await asyncio.sleep(0.2)

    async def deliver(self, reply: Reply) -> None:
        """Write a file that has the reply's id for a name, so that a reply that comes again replaces itself."""
        draft = self._out / f".{reply.id}"
        try:
            draft.write_text(reply.model_dump_json(), "utf-8")
            draft.rename(self._out / f"{reply.id}.json")
        except OSError as error:
            raise DeliveryFailed(f"{self._out} takes no reply: {error.strerror}.", retryable=True) from error

    async def done(self, update: Origin) -> None:
        """Remove the message."""
        (self._in / f"{update.id}.json").unlink(missing_ok=True)

    async def close(self) -> None:
        """Do nothing: no file is open."""


def channel(parts: InboundParts) -> FolderChannel:
    """Return the channel of a folder, which the variable DESK_FOLDER names."""
    return FolderChannel(parts.name, Path(parts.environment["DESK_FOLDER"]))
