# Generated from nova_workers/client/resources/archive.py by `make format`: change that file instead.
"""``/v1/export`` and ``/v1/import``."""

from collections.abc import Generator, Iterable
from contextlib import closing

from nova_workers.base.errors import Unavailable
from nova_workers.client.sync.connection import lines_of
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.http.archive import MEDIA_TYPE, ImportResult

_END = b'{"table": "end"'


class Archives:
    """Export and import of a tenant as lines of JSON."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def export(self) -> Generator[bytes]:
        """Yield the lines of an archive, without their line feeds.

        Raises:
            Unavailable: The connection broke, so the archive is incomplete.
        """
        ended = False
        with (
            self._transport.download("/v1/export", accept=MEDIA_TYPE) as pieces,
            closing(lines_of(pieces)) as lines,
        ):
            for line in lines:
                ended = line.startswith(_END)
                yield line
        if not ended:
            raise Unavailable("The archive was cut on its way here; export it anew.")

    def import_(self, lines: Iterable[bytes], *, merge: bool = False) -> ImportResult:
        """Import an archive, whole or not at all.

        Args:
            lines: With or without line feeds.
            merge: Skip rows that exist already, rather than refuse the whole archive.
        """
        content = self._transport.upload(
            "/v1/import", _with_feeds(lines), content_type=MEDIA_TYPE, params={"merge": "true" if merge else "false"}
        )
        return ImportResult.model_validate_json(content)


def _with_feeds(lines: Iterable[bytes]) -> Generator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n"
