"""Text to speech with a program on the PATH."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nova_workers.base.audio.programs import run_program
from nova_workers.base.config import AudioSettings
from nova_workers.base.errors import ToolFailure

_NOTHING: Final = (
    "Nothing on this worker can speak. The operator installs one of these on its PATH: 'piper', with NOVA_AUDIO__VOICE "
    "as the path of a voice (.onnx); 'espeak-ng'; or 'say', which macOS has."
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A program that reads text on its standard input and writes a WAV file.

    Attributes:
        name: Its name in messages.
        command: The program and its arguments; ``{out}`` stands for the file.
    """

    name: str
    command: tuple[str, ...]
    timeout_s: float

    async def speak(self, text: str, target: Path) -> None:
        """Write a WAV file.

        Raises:
            ToolFailure: The program failed.
        """
        command = [part.replace("{out}", str(target)) for part in self.command]
        # One line: Piper records each line anew, over the one before.
        await run_program(command, timeout_s=self.timeout_s, given=" ".join(text.split()).encode())
        size_bytes = await asyncio.to_thread(lambda: target.stat().st_size if target.exists() else 0)
        if not size_bytes:
            raise ToolFailure(f"{self.name} ended well, but wrote nothing. Does the voice fit the language?")


def find_speaker(settings: AudioSettings) -> Speaker:
    """Return the installed speech program. Blocks for a moment.

    Raises:
        ToolFailure: None is installed; the message says what to install.
    """
    voice = settings.voice
    piper = shutil.which("piper")
    if piper is not None and voice is not None and voice.endswith(".onnx"):
        return Speaker("piper", (piper, "--model", voice, "--output_file", "{out}"), settings.timeout_s)
    named = ("-v", voice) if voice is not None and not voice.endswith(".onnx") else ()
    espeak = shutil.which("espeak-ng")
    if espeak is not None:
        return Speaker("espeak-ng", (espeak, *named, "-w", "{out}", "--stdin"), settings.timeout_s)
    say = shutil.which("say")
    if say is not None:
        wave = ("--file-format=WAVE", "--data-format=LEI16@22050", "-o", "{out}", "-f", "-")
        return Speaker("say", (say, *named, *wave), settings.timeout_s)
    raise ToolFailure(_NOTHING)
