"""Speech to text by a server: any with ``POST /v1/audio/transcriptions``."""

import asyncio
from pathlib import Path
from typing import Final

import httpx2

from nova_workers.base.config import AudioSettings
from nova_workers.base.errors import ToolFailure
from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses

_SAID_CHARS: Final = 300


class TranscriptionServer:
    """The configured server. Implements `Transcriber`."""

    def __init__(self, settings: AudioSettings, base_url: str) -> None:
        self._settings = settings
        self._url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/audio/transcriptions"

    async def transcribe(self, recording: Path, language: str | None) -> str:
        """See `Transcriber.transcribe`."""
        key = self._settings.transcription_api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
        form = {"model": self._settings.transcription_model, "response_format": "json"}
        if language is not None:
            form["language"] = language
        content = await asyncio.to_thread(recording.read_bytes)
        try:
            async with httpx2.AsyncClient(headers=headers, timeout=self._settings.timeout_s) as client:
                bound_responses(client, ResponseBounds(total_s=self._settings.timeout_s))
                response = await client.post(self._url, data=form, files={"file": (recording.name, content)})
        except httpx2.TransportError as error:
            raise ToolFailure(
                f"The transcription server did not answer ({type(error).__name__}). Try later."
            ) from error
        return _text_of(response)


def _text_of(response: httpx2.Response) -> str:
    if response.status_code in {401, 403, 404}:
        raise ToolFailure(
            f"The transcription server refused us (status {response.status_code}). The operator checks "
            "NOVA_AUDIO__TRANSCRIPTION_URL, NOVA_AUDIO__TRANSCRIPTION_API_KEY and NOVA_AUDIO__TRANSCRIPTION_MODEL."
        )
    if not response.is_success:
        said = response.text[:_SAID_CHARS]
        raise ToolFailure(f"The transcription server refused the recording (status {response.status_code}): {said}")
    try:
        text = response.json()["text"]
    except (ValueError, TypeError, KeyError):
        text = None
    if not isinstance(text, str):
        raise ToolFailure("The transcription server answered with something else than a text.")
    return text.strip()
