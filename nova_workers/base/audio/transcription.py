"""Speech to text: a server, a Whisper package in a process of its own, or whisper.cpp."""

import asyncio
import json
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from nova_workers.base.audio.programs import run_program
from nova_workers.base.config import AudioSettings
from nova_workers.base.errors import ToolFailure

_CHILD: Final = Path(__file__).with_name("whisper_child.py")
_PACKAGES: Final = ("faster_whisper", "whisper")
"""The packages in order of preference: the first needs a quarter of the other's time and memory for the same model."""
_WHISPER_CPP: Final = ("whisper-cli", "whisper-cpp")
_SERVER: Final = "nova_workers.base.audio.transcription_server"
"""Imported by name where a server is configured: the API, which knows the tool only, needs no client of HTTP."""

_NOTHING: Final = (
    "Nothing on this worker can transcribe. The operator installs one of: the Python package 'faster-whisper' (or "
    "'openai-whisper', with ffmpeg) into the worker's environment, with a model; or whisper.cpp as 'whisper-cli' on "
    "the PATH, with NOVA_AUDIO__TRANSCRIPTION_MODEL as the path of its model; or sets NOVA_AUDIO__TRANSCRIPTION_URL to "
    "a server that has /v1/audio/transcriptions."
)


class Transcriber(Protocol):
    """Turns a recording into text. Above it: the tool. Below it: a program or a server."""

    async def transcribe(self, recording: Path, language: str | None) -> str:
        """Return the transcript of a file that no other process can change meanwhile.

        Args:
            recording: The file; its suffix is that of its format.
            language: ISO 639 code; None detects it.

        Raises:
            ToolFailure: It failed; the message says why and what to do.
        """
        ...


def find_transcriber(settings: AudioSettings) -> Transcriber:
    """Return the transcriber: the configured server, else an installed program. Blocks for a moment.

    Raises:
        ToolFailure: There is none; the message says what to install.
    """
    if settings.transcription_url is not None:
        server: Transcriber = import_module(_SERVER).TranscriptionServer(settings, settings.transcription_url)
        return server
    for package in _PACKAGES:
        if find_spec(package) is not None:
            return _WhisperPackage(package, settings)
    for program in _WHISPER_CPP:
        path = shutil.which(program)
        if path is not None:
            return _WhisperCpp(path, settings)
    raise ToolFailure(_NOTHING)


class _WhisperPackage:
    def __init__(self, package: str, settings: AudioSettings) -> None:
        self._package = package
        self._settings = settings

    async def transcribe(self, recording: Path, language: str | None) -> str:
        # -P: the modules beside the script must not hide those of its libraries.
        command = [sys.executable, "-P", str(_CHILD), self._package, self._settings.transcription_model, str(recording)]
        done = await run_program([*command, *([language] if language else [])], timeout_s=self._settings.timeout_s)
        try:
            answer: dict[str, str] = json.loads(done.text())
        except ValueError as error:
            raise ToolFailure(f"{self._package} answered with something else than a text.") from error
        if "error" in answer:
            raise ToolFailure(f"{self._package} could not transcribe it. {answer['error']}")
        return answer["text"]


class _WhisperCpp:
    def __init__(self, program: str, settings: AudioSettings) -> None:
        self._program = program
        self._settings = settings

    async def transcribe(self, recording: Path, language: str | None) -> str:
        model = Path(self._settings.transcription_model)
        if not await asyncio.to_thread(model.is_file):
            raise ToolFailure(
                f"whisper.cpp needs a model file, and {str(model)!r} is none on this worker. The operator sets "
                "NOVA_AUDIO__TRANSCRIPTION_MODEL to the path of a ggml model."
            )
        # To a file beside the recording, in its temporary directory: the program mixes its output with its log.
        text = recording.with_name("transcript")
        options = ["-nt", "-l", language or "auto", "-otxt", "-of", str(text)]
        await run_program(
            [self._program, "-m", str(model), "-f", str(recording), *options], timeout_s=self._settings.timeout_s
        )
        try:
            said = await asyncio.to_thread(text.with_name("transcript.txt").read_text, "utf-8", "replace")
        except OSError as error:
            raise ToolFailure("whisper.cpp wrote no transcript. Give it a recording in WAV, 16 kHz.") from error
        return " ".join(said.split())
