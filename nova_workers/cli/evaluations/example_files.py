"""Files of examples: JSON lines, or CSV with a head. A file is read whole, or refused with the numbers of bad lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.contracts.http.datasets import MAX_ADDED, ExampleGive, ExampleView

COLUMNS: Final = ("input", "expected", "key", "split", "tags", "rubric")
_MAX_SHOWN: Final = 10
_BATCH_BYTES: Final = 3 * 1024 * 1024
"""A request of the API has 4 MB by default."""


def read_examples(path: Path) -> list[ExampleGive]:
    """Return the examples of a file.

    Raises:
        InvalidInput: It cannot be read, or has lines that are no examples; the message has their numbers.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}") from error
    lines = _csv_lines(text, path) if path.suffix.lower() == ".csv" else _json_lines(text)
    examples: list[ExampleGive] = []
    wrong: list[str] = []
    for number, values in lines:
        try:
            examples.append(_example(values))
        except InvalidInput as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"\nand {len(wrong) - _MAX_SHOWN} more" if len(wrong) > _MAX_SHOWN else ""
        listed = "\n".join(wrong[:_MAX_SHOWN])
        raise InvalidInput(f"{path}: nothing was imported, since {len(wrong)} lines are no examples.\n{listed}{more}")
    if not examples:
        raise InvalidInput(f"{path}: it has no examples.")
    return examples


def batches(examples: Iterable[ExampleGive]) -> Iterator[list[ExampleGive]]:
    """Return the examples in parts that a request takes."""
    batch: list[ExampleGive] = []
    size = 0
    for example in examples:
        chars = len(example.model_dump_json())
        if batch and (len(batch) == MAX_ADDED or size + chars > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(example)
        size += chars
    if batch:
        yield batch


def line_of(example: ExampleView) -> str:
    """Return an example as a line that can be imported."""
    line = example.model_dump(mode="json", include=set(ExampleGive.model_fields))
    context = [{"role": message["role"], "content": message["content"]} for message in line["context"]]
    return json.dumps({**line, "context": context}, ensure_ascii=False)


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def _csv_lines(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=True)
    names = list(reader.fieldnames or ())
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "input" not in names:
        raise InvalidInput(
            f"{path}: its first line has {', '.join(map(repr, names))}. Name the columns input and, if you have them, "
            f"{', '.join(COLUMNS[1:])}."
        )
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InvalidInput(f"{path}: line {reader.line_num}: {error}") from error


def _example(values: Any) -> ExampleGive:
    if isinstance(values, str):
        try:
            values = json.loads(values)
        except ValueError as error:
            raise InvalidInput(f"no JSON: {error}") from error
    elif "" in values:
        raise InvalidInput("it has more fields than the first line; put quotes around a text with commas")
    else:
        values = _from_csv(values)
    try:
        return ExampleGive.model_validate(values)
    except ValidationError as error:
        item = error.errors()[0]
        raise InvalidInput(f"{place_of(item) or 'input'}: {problem_of(item, ExampleGive)}") from error


def _from_csv(row: Mapping[str, str | None]) -> dict[str, Any]:
    values: dict[str, Any] = {name: value for name, value in row.items() if value}
    if "tags" in values:
        values["tags"] = [tag.strip() for tag in values["tags"].split(";") if tag.strip()]
    return values
