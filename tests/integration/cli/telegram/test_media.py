"""Photos, documents and recordings of people."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.integration.cli.telegram.conftest import Stage, soon
from tests.support.data.media_samples import JPEG, PDF, png
from tests.support.servers.asgi import serving

pytestmark = pytest.mark.fleet


async def test_photos_documents_and_texts_reach_the_agent(served: Stage) -> None:
    telegram = served.telegram
    telegram.sends("photo", JPEG, caption="what is this?")
    await soon(lambda: "You said: what is this?" in telegram.texts())
    telegram.sends("document", PDF, mime_type="application/pdf", file_name="a.pdf")
    telegram.sends("document", b"a note", mime_type="application/octet-stream", file_name="a.md")
    await soon(lambda: telegram.unconfirmed == [])

    async def blocks() -> list[list[str]]:
        runs = [run for run in await served.runs() if run.finished_at is not None]
        return [[block["type"] for block in run.message] for run in reversed(runs)]

    expected = [["text", "image"], ["document"], ["document"]]

    async def all_ended() -> bool:
        return await blocks() == expected

    await soon(all_ended)


@pytest.mark.long
async def test_what_cannot_be_taken_is_refused_with_the_reason(served: Stage) -> None:
    telegram = served.telegram
    telegram.sends("document", b"PK", mime_type="application/zip", file_name="a.zip")
    telegram.says(
        "",
        sticker={
            "file_id": "s",
            "file_unique_id": "s",
            "type": "regular",
            "width": 1,
            "height": 1,
            "is_animated": False,
            "is_video": False,
        },
    )
    telegram.sends("photo", png(), file_size=30_000_000)
    await soon(lambda: len(telegram.whole_texts()) == 3)
    zipped, sticker, large = sorted(telegram.texts())
    assert "application/zip" in zipped
    assert "20 MB" in sticker or "20 MB" in large
    assert await served.runs() == []


@pytest.mark.long
async def test_a_voice_message_is_transcribed_by_the_server(stage: Stage) -> None:
    heard: list[tuple[str, bytes]] = []

    async def transcribe(request: Request) -> JSONResponse:
        async with request.form() as form:
            file = form["file"]
            assert not isinstance(file, str)
            heard.append((file.filename or "", await file.read()))
        return JSONResponse({"text": f"Tea please, number {len(heard)}."})

    app = Starlette(routes=[Route("/v1/audio/transcriptions", transcribe, methods=["POST"])])
    async with serving(app) as url:
        stage.start(NOVA_AUDIO__TRANSCRIPTION_URL=url)
        stage.telegram.sends("voice", b"OggS")
        await soon(lambda: stage.telegram.texts() == ["You said: Tea please, number 1."])
    assert heard == [("recording.ogg", b"OggS")]


@pytest.mark.long
async def test_without_transcription_the_bot_says_that_voice_is_not_configured(served: Stage) -> None:
    served.telegram.sends("voice", b"OggS")
    await soon(lambda: "not configured" in "".join(served.telegram.texts()))
    assert await served.runs() == []
