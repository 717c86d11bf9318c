"""Files in a chat: one that Telegram refuses as a voice message, and one that is too large for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nova_workers.base.config.sections import AudioSettings
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.delivering import Deliverer
from nova_workers.channels.journal import Journal, OpenUpdate
from nova_workers.channels.port import File, Origin, Reply
from nova_workers.channels.telegram.api import BotApi
from nova_workers.channels.telegram.channel import TelegramChannel
from nova_workers.channels.telegram.files import MAX_UPLOAD_BYTES
from nova_workers.channels.telegram.intake import Intake, Pressed
from nova_workers.channels.telegram.media import MediaReader
from nova_workers.channels.telegram.sources import Polling
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from tests.support.servers.asgi import serving
from tests.support.servers.telegram_server import TOKEN, BotApiError, TelegramServer, telegram_server

ORIGIN = Origin(id="1", conversation="7", sender="7")


class Fleet:
    """What the channel needs of the API: leases that everybody gets, and files of one content.

    Attributes:
        fetched: Ids of the files whose content was read.
    """

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/leases/{name}", self._lease, methods=["PUT"]),
                Route("/v1/files/{file_id}/content", self._content),
            ]
        )

    async def _lease(self, request: Request) -> JSONResponse:
        asked = await request.json()
        lease = {"name": request.path_params["name"], "holder": asked["holder"], "fence": 1, "token": "t", "state": {}}
        return JSONResponse({**lease, "expires_at": "2100-01-01T00:00:00Z"})

    async def _content(self, request: Request) -> Response:
        self.fetched.append(request.path_params["file_id"])
        return Response(b"OggS")


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with telegram_server() as server:
        yield server


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
async def deliverer(telegram: TelegramServer, fleet: Fleet) -> AsyncIterator[Deliverer]:
    async with serving(fleet.app()) as url, NovaClient(url, "nova_key") as nova:
        api, pressed = BotApi(SecretStr(TOKEN), telegram.url), Pressed()
        journal = Journal(nova, "channel:telegram")
        await journal.acquire()
        await journal.accept(OpenUpdate(origin=ORIGIN, is_item=True, run_id="run_1"))
        media = MediaReader(api, AudioSettings())
        intake = Intake(api, "bot", AllowList(["7"]), media=media, pressed=pressed, pairing=None)
        channel = TelegramChannel("telegram", api, journal, intake=intake, source=Polling(), pressed=pressed)
        yield Deliverer(nova, channel, Retry(attempts=3, base_s=0.001, max_s=0.001))
        await api.close()


def _reply(file: File, text: str = "") -> Reply:
    return Reply(
        type="notification",
        id="dlv_1",
        update_id="1",
        conversation="7",
        sender="7",
        text=text,
        run_id="run_1",
        file=file,
    )


@pytest.mark.parametrize("text", ["", "Listen. " * 300])
async def test_a_recording_that_is_refused_as_a_voice_message_is_sent_as_a_file_despite_a_failure(
    telegram: TelegramServer, deliverer: Deliverer, text: str
) -> None:
    forbidden = BotApiError(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN")
    telegram.failures = {"sendVoice": [forbidden, forbidden], "editMessageMedia": [BotApiError(500, "Internal")]}
    recording = File(id="file_1", name="a.ogg", media_type="audio/ogg", size_bytes=4)
    assert await deliverer.deliver(_reply(recording, text))
    shown = [(message.kind, message.content) for message in telegram.messages]
    assert shown == [*([("text", b"")] if text else []), ("document", b"OggS")]


async def test_a_file_that_is_too_large_for_the_channel_is_named_and_never_read(
    telegram: TelegramServer, deliverer: Deliverer, fleet: Fleet
) -> None:
    film = File(id="file_2", name="film.mp4", media_type="video/mp4", size_bytes=MAX_UPLOAD_BYTES + 1)
    assert await deliverer.deliver(_reply(film))
    assert "nova files get file_2" in telegram.texts()[0]
    assert fleet.fetched == []
