"""The child process that runs a Whisper package on one file, to keep the model's memory and work out of the worker.

A script that imports nothing of ours. Arguments: package, model, file, language or nothing. Writes one line
of JSON: ``{"text": …}``, or ``{"error": …}`` with what to do about it. Downloads nothing.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def _faster_whisper(model: str, file: str, language: str | None) -> str:
    package: Any = importlib.import_module("faster_whisper")
    try:
        whisper = package.WhisperModel(model, device="auto", compute_type="default", local_files_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise LookupError(
            f"The model {model!r} is not on this worker ({type(error).__name__}). The operator gets it with: "
            f"python -c 'import faster_whisper; faster_whisper.download_model(\"{model}\")'"
        ) from error
    segments, _ = whisper.transcribe(file, language=language)
    return "".join(segment.text for segment in segments)


def _openai_whisper(model: str, file: str, language: str | None) -> str:
    package: Any = importlib.import_module("whisper")
    if not hasattr(package, "load_model"):
        raise LookupError("The package 'whisper' on this worker is another one; the right one is 'openai-whisper'.")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "whisper"
    if not Path(model).is_file() and not (cache / f"{model}.pt").is_file() and not list(cache.glob(f"*{model}*.pt")):
        raise LookupError(
            f"The model {model!r} is not on this worker. The operator gets it with: "
            f"python -c 'import whisper; whisper.load_model(\"{model}\")'"
        )
    return str(package.load_model(model).transcribe(file, language=language)["text"])


def main() -> None:
    """Transcribe one file."""
    package, model, file, *language = sys.argv[1:]
    transcribe = {"faster_whisper": _faster_whisper, "whisper": _openai_whisper}[package]
    # Libraries print to stdout, so the answer has a descriptor of its own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        answer = {"text": transcribe(model, file, language[0] if language else None).strip()}
    except Exception as error:  # the loop head: the parent tells the model what went wrong
        answer = {"error": str(error) if isinstance(error, LookupError) else f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
