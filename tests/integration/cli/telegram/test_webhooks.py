"""Updates by webhook."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from nova_workers.base.config import AudioSettings
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.journal import Journal
from nova_workers.channels.port import UnreportedRests
from nova_workers.channels.telegram.api import BotApi
from nova_workers.channels.telegram.channel import TelegramChannel
from nova_workers.channels.telegram.intake import Intake, Pressed
from nova_workers.channels.telegram.media import MediaReader
from nova_workers.channels.telegram.sources import Polling, Webhook
from nova_workers.client.client import NovaClient
from tests.integration.cli.telegram.conftest import Stage, soon
from tests.requirements import proves
from tests.support.processes.fleet import free_port
from tests.support.servers.telegram_server import TOKEN, telegram_server

pytestmark = pytest.mark.fleet

PROOF = b"x-telegram-bot-api-secret-token"


@proves("security.telegram")
async def test_a_webhook_takes_updates_with_its_secret_only_and_each_once(stage: Stage) -> None:
    telegram, port = stage.telegram, free_port()
    stage.start(NOVA_TELEGRAM__WEBHOOK_URL="https://bots.example.com/hooks", NOVA_TELEGRAM__WEBHOOK_PORT=str(port))
    await soon(lambda: telegram.webhook is not None)
    assert telegram.webhook is not None
    assert telegram.webhook["url"] == "https://bots.example.com/hooks/telegram"
    secret = telegram.webhook["secret_token"].encode()
    telegram.says("hello")
    update = telegram.last_update()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as proxy:

        async def send(proof: bytes | None, content: bytes) -> int:
            headers = [] if proof is None else [(PROOF, proof)]
            return (await proxy.post("/hooks/telegram", headers=headers, content=content)).status_code

        body = json.dumps(update).encode()
        assert [await send(proof, body) for proof in (None, b"", b"wrong", b"\xe9", secret[:-1])] == [403] * 5
        assert await send(secret, b"{nonsense") == 400
        assert await send(secret, b" " * (2 << 20)) == 413
        assert telegram.texts() == []
        assert await asyncio.gather(*(send(secret, body) for _ in range(3))) == [200] * 3
        await soon(lambda: telegram.texts() == ["You said: hello"])
    assert len(await stage.runs()) == 1
    assert telegram.named("getUpdates") == []


async def test_a_webhook_whose_channel_is_closed_refuses_at_once_what_it_has_not_confirmed() -> None:
    async with telegram_server() as telegram, NovaClient("http://127.0.0.1:9", "key") as nova:
        api, webhook, pressed = (
            BotApi(SecretStr(TOKEN), telegram.url),
            Webhook("https://a.example/b", "secret"),
            Pressed(),
        )
        media = MediaReader(api, AudioSettings())
        intake = Intake(api, "bot", AllowList(["7"]), media=media, pressed=pressed, pairing=None)
        journal = Journal(nova, "channel:test")
        channel = TelegramChannel("telegram", api, journal, intake=intake, source=webhook, pressed=pressed)
        async with TestServer(Webhook.application({"/b": webhook})) as server, httpx2.AsyncClient(timeout=60) as client:

            async def send(text: str) -> int:
                telegram.says(text)
                headers = {"X-Telegram-Bot-Api-Secret-Token": "secret"}
                url = str(server.make_url("/b"))
                return (await client.post(url, headers=headers, json=telegram.last_update(), timeout=20)).status_code

            updates = channel.updates()
            first = asyncio.ensure_future(anext(updates))
            await soon(lambda: telegram.webhook is not None)
            sending = asyncio.create_task(send("one"))
            assert (await first).text == "one"
            # As when the relay fails over an update: no other is requested.
            await channel.close()
            assert await sending == 503
            assert await send("two") == 503
        await api.close()


class _Reported(Exception):
    """The first pause, in its words."""


class _FirstRest(UnreportedRests):
    async def rest(self, error: str, for_s: float) -> None:
        raise _Reported(error)


async def test_a_token_that_telegram_does_not_know_is_reported_with_what_to_do() -> None:
    async with telegram_server() as telegram:
        api = BotApi(SecretStr(TOKEN.replace("AA", "AB")), telegram.url)
        with pytest.raises(_Reported) as caught:
            await anext(Polling().updates(api, _FirstRest()))
        await api.close()
    advice = "Telegram does not know the token. Copy it from BotFather again."
    assert str(caught.value) == f"Telegram: Unauthorized. {advice}"
