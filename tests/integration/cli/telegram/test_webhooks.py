"""Updates by webhook."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.integration.cli.telegram.conftest import Stage, soon
from tests.support.processes.fleet import free_port

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("cli_fleet"), pytest.mark.timeout(240)]

PROOF = b"x-telegram-bot-api-secret-token"


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
