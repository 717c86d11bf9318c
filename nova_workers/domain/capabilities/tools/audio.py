"""The `audio` capability: recordings become text, and text becomes speech."""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from nova_workers.base.audio import find_speaker, find_transcriber
from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import LimitExceeded, ToolFailure
from nova_workers.contracts.content import storable
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)

_MAX_PATH_CHARS: Final = 4_096
_MAX_SPOKEN_CHARS: Final = 20_000
"""About twenty minutes."""
_MAX_SHOWN_CHARS: Final = 100_000
"""About 25,000 tokens: two hours of speech."""
_CHUNK_BYTES: Final = 1 << 20
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")

_Path = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_PATH_CHARS)]


class _Transcribe(ToolInput):
    path: Annotated[_Path, Field(description="A recording; a relative path starts at your working directory.")]
    language: Annotated[
        str | None,
        Field(pattern=r"^[a-z]{2,3}$", description="What is spoken, such as en; left out, it is found out."),
    ] = None


class _Speak(ToolInput):
    text: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=_MAX_SPOKEN_CHARS),
        AfterValidator(storable),
        Field(description="What to say."),
    ]
    path: Annotated[
        _Path | None,
        Field(description="The .wav file to write, in your working directory. Left out, it gets a name of its own."),
    ] = None


class _AudioTools:
    """Speech programs work on copies, because the agent's own programs may change its directory meanwhile."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._programs = asyncio.Semaphore(settings.audio.max_processes)

    async def transcribe(self, context: CapabilityContext, given: _Transcribe) -> str:
        confinement = self._confinement(context, reads=True)
        transcriber = await asyncio.to_thread(find_transcriber, self._settings.audio)
        async with _scratch() as scratch:
            suffix = _SUFFIX.search(given.path)
            recording = scratch / f"recording{suffix.group() if suffix else ''}"
            await asyncio.to_thread(self._copy_in, confinement, given.path, recording)
            async with self._programs:
                text = storable(await transcriber.transcribe(recording, given.language))
        if not text:
            return f"No speech was heard in {given.path}."
        if len(text) > _MAX_SHOWN_CHARS:
            return f"{text[:_MAX_SHOWN_CHARS]}\n[… {len(text) - _MAX_SHOWN_CHARS} more characters; cut the recording.]"
        return text

    async def speak(self, context: CapabilityContext, given: _Speak) -> str:
        confinement = self._confinement(context, reads=False)
        path = given.path or f"speech-{self._clock.now():%Y%m%d-%H%M%S-%f}.wav"
        if not path.lower().endswith(".wav"):
            raise ToolFailure(f"{path!r} is not the name of a WAV file; let it end with .wav.")
        speaker = await asyncio.to_thread(find_speaker, self._settings.audio)
        async with _scratch() as scratch:
            spoken = scratch / "speech.wav"
            async with self._programs:
                await speaker.speak(given.text, spoken)
            size_bytes = await asyncio.to_thread(_copy_out, confinement, spoken, path)
        return f"Wrote {path} ({size_bytes} bytes, by {speaker.name})."

    def _confinement(self, context: CapabilityContext, *, reads: bool) -> Confinement:
        if context.cwd is None:
            raise ToolFailure(f"You work without files (your trust is {context.agent.trust!r}), so there is no audio.")
        return Confinement(
            (context.cwd, *(context.readable if reads else ())),
            within=() if context.enclosure is None else context.enclosure.roots,
            beneath=context.readable,
            but=None if reads else context.kept,
            private=PrivateFiles(self._settings.home, self._settings.workspace_root),
        )

    def _copy_in(self, confinement: Confinement, path: str, target: Path) -> None:
        """Copy a recording into a private directory. Blocks."""
        most = self._settings.audio.max_bytes
        try:
            with (
                open(confinement.open_file(confinement.resolve(path), os.O_RDONLY), "rb") as source,
                target.open("wb") as copy,
            ):
                room = most
                while chunk := source.read(_CHUNK_BYTES):
                    room -= len(chunk)
                    if room < 0:
                        raise LimitExceeded(
                            f"{path!r} has more than the {most} bytes that a recording may have "
                            "(NOVA_AUDIO__MAX_BYTES). Cut or compress it.",
                            limit=most,
                        )
                    copy.write(chunk)
        except (OSError, ValueError) as error:
            raise _unfit(path, error) from error


def _copy_out(confinement: Confinement, source: Path, path: str) -> int:
    """Copy a recording into the agent's directory, and return its size. Blocks."""
    try:
        flags = os.O_WRONLY | os.O_TRUNC
        with (
            source.open("rb") as spoken,
            open(confinement.open_file(confinement.resolve(path), flags, make=True), "wb") as target,
        ):
            shutil.copyfileobj(spoken, target)
            return target.tell()
    except (OSError, ValueError) as error:
        raise _unfit(path, error) from error


def _unfit(path: str, error: Exception) -> ToolFailure:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return ToolFailure(f"{path!r} cannot be used: {why}.")


@asynccontextmanager
async def _scratch() -> AsyncGenerator[Path]:
    directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="nova-audio-"))
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    tools = _AudioTools(parts.settings, parts.clock)
    return ToolCapability(
        "audio",
        "Transcribe recordings and speak texts, with what the worker has installed.",
        (
            ToolDeclaration(
                name="audio_transcribe",
                description="Return what is said in a recording.",
                input=_Transcribe,
                run=tools.transcribe,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="audio_speak",
                description="Write a WAV file in which a voice says a text.",
                input=_Speak,
                run=tools.speak,
                writes_files=True,
            ),
        ),
    )
