"""The audio capability: with fake programs on the PATH, and a server."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
import textwrap
import wave
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.integration.capabilities.tool_caller import ToolCaller
from tests.support.harness.workers import Harness
from tests.support.servers.api_stub import ApiStub, api_stub
from tests.support.servers.model_server import Part, Stream, model_server

TO_TRANSCRIBE = "Nothing on this worker can transcribe."
TO_SPEAK = "Nothing on this worker can speak."

Install = Callable[[str, str], Path]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Empty the PATH except programs that the test writes in Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(name: str, source: str) -> Path:
        program = folder / name
        program.write_text(f"#!{sys.executable}\nimport sys, os, json\n{textwrap.dedent(source)}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    return install


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every installed Whisper package."""

    def find(_: str) -> None:
        return None

    monkeypatch.setattr("nova_workers.base.audio.transcription.find_spec", find)


class AudioAgent:
    """An agent with the audio capability and a directory."""

    def __init__(self, database: Database, settings: Settings, **spec: Any) -> None:
        self.directory = settings.agent_directory("ten_1", "a")
        self.directory.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = {"trust": "controlled", "capabilities": {"audio": CapabilityGrant()}, **spec}
        self._caller = ToolCaller(database, settings=settings, **given)

    def record(self, name: str = "note.wav") -> Path:
        """Write a short recording of silence."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(bytes(3_200))
        return path

    async def transcribe(self, path: str = "note.wav", **given: Any) -> str:
        """Transcribe."""
        return await self._caller.call("audio_transcribe", path=path, **given)

    async def speak(self, text: str, **given: Any) -> str:
        """Speak."""
        return await self._caller.call("audio_speak", text=text, **given)


def _audio(settings: Settings, **given: Any) -> Settings:
    return settings.model_copy(update={"audio": settings.audio.model_copy(update=given)})


# Without anything


@pytest.mark.usefixtures("no_package")
async def test_without_a_program_the_model_gets_the_name_of_what_to_install(
    database: Database, settings: Settings, programs: Install
) -> None:
    audio_agent = AudioAgent(database, settings)
    audio_agent.record()
    assert (await audio_agent.transcribe()).startswith(
        f"!{TO_TRANSCRIBE} The operator installs one of: the Python package 'faster"
    )
    assert (await audio_agent.speak("Hello")).startswith(
        f"!{TO_SPEAK} The operator installs one of these on its PATH: 'piper'"
    )


async def test_an_agent_without_files_has_no_audio(database: Database, settings: Settings) -> None:
    audio_agent = AudioAgent(database, settings, trust="sandbox")
    audio_agent.record()
    assert await audio_agent.transcribe() == "!You work without files (your trust is 'sandbox'), so there is no audio."
    assert (
        await audio_agent.speak("Hello") == "!You work without files (your trust is 'sandbox'), so there is no audio."
    )


# whisper.cpp

_WHISPER_CPP = """
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
options = dict(zip(sys.argv[1:], sys.argv[2:] + [""]))
print("whisper_init: loading", options["-m"])
words = [open(options["-f"], "rb").read(4).decode(), options["-l"], options["-f"].rpartition(".")[2]]
open(options["-of"] + ".txt", "w").write(" heard " + " ".join(words) + "\\n\\n it\\n")
"""


@pytest.mark.usefixtures("no_package")
async def test_whisper_cpp_transcribes_a_copy_and_only_its_transcript_is_returned(
    database: Database, settings: Settings, programs: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    programs("whisper-cli", _WHISPER_CPP)
    model = tmp_path / "ggml-base.bin"
    model.write_bytes(b"model")
    audio_agent = AudioAgent(database, _audio(settings, transcription_model=str(model)))
    audio_agent.record("in/note.wav")
    assert await audio_agent.transcribe("in/note.wav") == "heard RIFF auto wav it"
    assert await audio_agent.transcribe("in/note.wav", language="de") == "heard RIFF de wav it"
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("no_package")
async def test_whisper_cpp_without_a_model_file_names_the_setting(
    database: Database, settings: Settings, programs: Install
) -> None:
    programs("whisper-cli", _WHISPER_CPP)
    audio_agent = AudioAgent(database, settings)
    audio_agent.record()
    assert "NOVA_AUDIO__TRANSCRIPTION_MODEL to the path of a ggml model" in await audio_agent.transcribe()


@pytest.mark.usefixtures("no_package")
async def test_a_program_that_fails_or_hangs_is_reported(
    database: Database, settings: Settings, programs: Install, tmp_path: Path
) -> None:
    model = tmp_path / "ggml-base.bin"
    model.write_bytes(b"model")
    programs("whisper-cli", "sys.exit('cannot read it')")
    audio_agent = AudioAgent(database, _audio(settings, transcription_model=str(model)))
    audio_agent.record()
    assert await audio_agent.transcribe() == "!whisper-cli failed (status 1): cannot read it"
    programs("whisper-cli", "pass")
    assert (await audio_agent.transcribe()).startswith("!whisper.cpp wrote no transcript.")
    programs("whisper-cli", "import time; time.sleep(600)")
    hasty = AudioAgent(database, _audio(settings, transcription_model=str(model), timeout_s=0.5))
    hasty.record()
    assert await hasty.transcribe() == "!whisper-cli was not done after 0.5 s and was stopped. Try a shorter piece."


# The Python packages, by a fake with the same interface

_FASTER_WHISPER = """
class Segment:
    def __init__(self, text):
        self.text = text

class WhisperModel:
    def __init__(self, model, device, compute_type, local_files_only):
        print("a library may print")
        if model != "base" or not local_files_only:
            raise ValueError("no such model")

    def transcribe(self, file, language):
        import os
        secrets = [name for name in os.environ if name.startswith("NOVA_")]
        return iter([Segment(" Hello,"), Segment(f" {language} {os.path.basename(file)} {secrets}")]), None
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a fake package with the name and interface of faster-whisper."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "faster_whisper.py").write_text(_FASTER_WHISPER)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.usefixtures("package")
async def test_a_whisper_package_runs_in_a_process_of_its_own_without_our_secrets(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_MODEL__API_KEY", "hunter2")
    audio_agent = AudioAgent(database, settings)
    audio_agent.record()
    assert await audio_agent.transcribe(language="de") == "Hello, de recording.wav []"
    assert await audio_agent.transcribe() == "Hello, None recording.wav []"
    assert "faster_whisper" not in sys.modules


@pytest.mark.usefixtures("package")
async def test_a_missing_model_is_not_downloaded(database: Database, settings: Settings) -> None:
    audio_agent = AudioAgent(database, _audio(settings, transcription_model="large-v3"))
    audio_agent.record()
    said = await audio_agent.transcribe()
    assert said.startswith("!faster_whisper could not transcribe it. The model 'large-v3' is not on this worker")
    assert 'faster_whisper.download_model("large-v3")' in said


@pytest.mark.skipif(importlib.util.find_spec("faster_whisper") is None, reason="faster-whisper is not installed")
async def test_the_real_package_reports_that_its_model_is_missing(database: Database, settings: Settings) -> None:
    audio_agent = AudioAgent(database, _audio(settings, transcription_model="no-such-model"))
    audio_agent.record()
    assert "is not on this worker" in await audio_agent.transcribe()


# A server


@pytest.fixture
async def server() -> AsyncIterator[ApiStub]:
    async with api_stub() as server:
        yield server


async def test_a_server_is_preferred_to_installed_programs(
    database: Database, settings: Settings, server: ApiStub
) -> None:
    async def answer(_: Request) -> Response:
        return JSONResponse({"text": " Hello there. "})

    server.on("POST", "/v1/audio/transcriptions", answer)
    given = {
        "transcription_url": f"{server.url}/v1/",
        "transcription_api_key": SecretStr("k"),
        "transcription_model": "w",
    }
    audio_agent = AudioAgent(database, _audio(settings, **given))
    audio_agent.record("memo.mp3")
    assert await audio_agent.transcribe("memo.mp3", language="en") == "Hello there."
    ((_, _, headers, body),) = server.requests
    assert headers["authorization"] == "Bearer k"
    for part in (b'name="model"\r\n\r\nw\r\n', b'name="language"\r\n\r\nen\r\n', b'filename="recording.mp3"', b"RIFF"):
        assert part in body


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {}, "refused us (status 401). The operator checks NOVA_AUDIO__TRANSCRIPTION_URL"),
        (415, {"error": "no mp3"}, 'refused the recording (status 415): {"error":"no mp3"}'),
        (200, {"words": 1}, "answered with something else than a text."),
        (200, [], "answered with something else than a text."),
        (200, {"text": ""}, "No speech was heard in note.wav."),
    ],
)
async def test_the_answer_of_a_server_is_returned(
    database: Database, settings: Settings, server: ApiStub, status: int, body: Any, says: str
) -> None:
    async def answer(_: Request) -> Response:
        return JSONResponse(body, status_code=status)

    server.on("POST", "/v1/audio/transcriptions", answer)
    audio_agent = AudioAgent(database, _audio(settings, transcription_url=server.url))
    audio_agent.record()
    assert says in await audio_agent.transcribe()


async def test_an_unreachable_server_is_reported(database: Database, settings: Settings) -> None:
    audio_agent = AudioAgent(database, _audio(settings, transcription_url="http://127.0.0.1:1"))
    audio_agent.record()
    assert await audio_agent.transcribe() == "!The transcription server did not answer (ConnectError). Try later."


# Speech

_SPEAKS = """
given = sys.argv[1:]
out = given[given.index("{option}") + 1]
open(out, "wb").write(b"RIFF" + json.dumps([given, sys.stdin.read()]).encode())
"""


@pytest.mark.parametrize(
    ("program", "option", "voice", "arguments"),
    [
        ("espeak-ng", "-w", None, ["-w", "OUT", "--stdin"]),
        ("espeak-ng", "-w", "de", ["-v", "de", "-w", "OUT", "--stdin"]),
        ("piper", "--output_file", "/voices/a.onnx", ["--model", "/voices/a.onnx", "--output_file", "OUT"]),
        ("say", "-o", None, ["--file-format=WAVE", "--data-format=LEI16@22050", "-o", "OUT", "-f", "-"]),
    ],
)
async def test_a_voice_writes_into_the_agents_directory(
    database: Database,
    settings: Settings,
    programs: Install,
    program: str,
    option: str,
    voice: str | None,
    arguments: list[str],
) -> None:
    programs(program, _SPEAKS.replace("{option}", option))
    audio_agent = AudioAgent(database, _audio(settings, voice=voice))
    said = await audio_agent.speak("Hello;\n$(rm -rf /) -v x", path="out/hello.wav")
    written = (audio_agent.directory / "out" / "hello.wav").read_bytes()
    assert said == f"Wrote out/hello.wav ({len(written)} bytes, by {program})."
    # Text is never an argument; a line break would be another recording.
    assert written.endswith(b', "Hello; $(rm -rf /) -v x"]')
    for argument in arguments:
        assert argument == "OUT" or f'"{argument}"'.encode() in written


async def test_a_recording_without_a_name_gets_one(database: Database, settings: Settings, programs: Install) -> None:
    programs("espeak-ng", _SPEAKS.replace("{option}", "-w"))
    audio_agent = AudioAgent(database, settings)
    first, second = await audio_agent.speak("One"), await audio_agent.speak("Two")
    assert first != second
    assert len(list(audio_agent.directory.glob("speech-*.wav"))) == 2


async def test_a_voice_that_writes_nothing_is_reported(
    database: Database, settings: Settings, programs: Install
) -> None:
    programs("espeak-ng", "pass")
    audio_agent = AudioAgent(database, settings)
    assert await audio_agent.speak("Hello", path="a.wav") == (
        "!espeak-ng ended well, but wrote nothing. Does the voice fit the language?"
    )
    assert not (audio_agent.directory / "a.wav").exists()


@pytest.mark.skipif(which("espeak-ng") is None, reason="espeak-ng is not installed")
async def test_the_real_voice_speaks(database: Database, settings: Settings) -> None:
    audio_agent = AudioAgent(database, settings)
    assert (await audio_agent.speak("Hello", path="a.wav")).startswith("Wrote a.wav")
    with wave.open(str(audio_agent.directory / "a.wav")) as file:
        assert file.getnframes() > 1_000


# Bounds


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/etc/passwd", "is outside"),
        ("../b/note.wav", "is outside"),
        ("link.wav", "is outside"),
        ("missing.wav", "No such file or directory"),
        (".", "is not a regular file"),
        ("pipe.wav", "is not a regular file"),
        ("a\x00b.wav", "cannot be used"),
    ],
)
async def test_recordings_come_from_the_agents_directory(
    database: Database, settings: Settings, server: ApiStub, tmp_path: Path, path: str, says: str
) -> None:
    audio_agent = AudioAgent(database, _audio(settings, transcription_url=server.url))
    (tmp_path / "secret.wav").write_bytes(b"secret")
    (audio_agent.directory / "link.wav").symlink_to(tmp_path / "secret.wav")
    os.mkfifo(audio_agent.directory / "pipe.wav")
    said = await audio_agent.transcribe(path)
    assert said.startswith("!")
    assert says in said
    assert server.requests == []


@pytest.mark.parametrize("path", ["/tmp/out.wav", "../out.wav", "link.wav"])
async def test_speech_goes_to_the_agents_directory(
    database: Database, settings: Settings, programs: Install, tmp_path: Path, path: str
) -> None:
    programs("espeak-ng", _SPEAKS.replace("{option}", "-w"))
    audio_agent = AudioAgent(database, settings)
    (audio_agent.directory / "link.wav").symlink_to(tmp_path / "outside.wav")
    assert "is outside" in await audio_agent.speak("Hello", path=path)
    assert not (tmp_path / "outside.wav").exists()


async def test_speech_does_not_go_to_the_directories_of_children(
    database: Database, settings: Settings, programs: Install
) -> None:
    programs("espeak-ng", _SPEAKS.replace("{option}", "-w"))
    own = settings.agent_directory("ten_1", "a")
    folder, child = own / "orch_1", own / "orch_1" / "clerk"
    child.mkdir(parents=True)
    master = AudioAgent(database, settings, context={"cwd": str(own), "kept": str(folder)})
    assert "where other agents work" in await master.speak("Hello", path="orch_1/clerk/a.wav")
    clerk = AudioAgent(database, settings, context={"cwd": str(child), "readable": (str(own),)})
    assert "is outside" in await clerk.speak("Hello", path="../../a.wav")
    assert (await clerk.speak("Hello", path="a.wav")).startswith("Wrote a.wav (")
    assert [path.relative_to(own).as_posix() for path in own.rglob("*.wav")] == ["orch_1/clerk/a.wav"]


async def test_a_recording_that_is_too_large_is_refused(
    database: Database, settings: Settings, server: ApiStub
) -> None:
    audio_agent = AudioAgent(database, _audio(settings, transcription_url=server.url, max_bytes=3_000))
    audio_agent.record()
    assert "more than the 3000 bytes that a recording may have" in await audio_agent.transcribe()
    assert server.requests == []


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("transcribe", {"path": ""}, "path: String should have at least 1 character"),
        ("transcribe", {"path": "a.wav", "language": "English; rm"}, "language: String should match pattern"),
        ("speak", {"text": "  "}, "text: String should have at least 1 character"),
        ("speak", {"text": "x" * 20_001}, "text: String should have at most 20000 characters"),
        ("speak", {"text": "x", "path": "run.sh"}, "'run.sh' is not the name of a WAV file"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, settings: Settings, tool: str, given: dict[str, Any], says: str
) -> None:
    audio_agent = AudioAgent(database, settings)
    said = await getattr(audio_agent, tool)(**given)
    assert said.startswith("!")
    assert says in said


def test_the_tools_are_described_to_the_model(database: Database, settings: Settings) -> None:
    (audio,) = (item for item in default_registry(database, settings, SystemClock()).discover() if item.name == "audio")
    assert [(tool.name, tool.idempotent, tool.read_only) for tool in audio.tools] == [
        ("audio_transcribe", True, True),
        ("audio_speak", False, False),
    ]


# Through the whole loop


async def test_the_model_records_speech_and_the_next_turn_transcribes_it(
    database: Database, redis: Redis, settings: Settings, programs: Install, server: ApiStub
) -> None:
    async def answer(_: Request) -> Response:
        return JSONResponse({"text": "Good morning."})

    server.on("POST", "/v1/audio/transcriptions", answer)
    programs("espeak-ng", _SPEAKS.replace("{option}", "-w"))
    harness = Harness(database, redis, _audio(settings, transcription_url=server.url))
    async with model_server() as model:
        harness.engines["anthropic"] = engine = AnthropicEngine(api_key="k", base_url=model.url, max_retries=0)
        await harness.open()
        spec = {"name": "A", "engine": "anthropic", "trust": "controlled", "capabilities": {"audio": {}}}
        await harness.add_agent("a", spec)
        worker = harness.worker()

        async def turn(tool: str, **given: Any) -> str:
            call = Part("tool", (f"toolu_{tool}", tool, given))
            model.reply(Stream((call,)), Stream((Part("text", ["Do", "ne."]),)))
            accepted = await harness.submit("Go on", agent_id="a")
            await harness.settle(worker)
            assert await harness.status(accepted.run_id) == "succeeded"
            return model.requests[-1]["messages"][-1]["content"][0]["content"][0]["text"]

        assert (await turn("audio_speak", text="Good morning", path="a.wav")).startswith("Wrote a.wav (")
        assert (settings.agent_directory(harness.tenant_id, "a") / "a.wav").exists()
        assert await turn("audio_transcribe", path="a.wav") == "Good morning."
        await harness.close()
        await engine.close()
    assert b'"Good morning"' in server.requests[0][3]
