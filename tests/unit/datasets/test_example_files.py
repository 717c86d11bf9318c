"""Files of examples are read whole, or refused with the numbers of the wrong lines."""

from pathlib import Path

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.evaluations.example_files import batches, read_examples
from nova_workers.contracts.http.datasets import MAX_ADDED, ExampleGive


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_json_lines_and_csv_say_the_same(tmp_path: Path) -> None:
    lines = '{"input": "a, b", "expected": "c", "tags": ["x", "y"]}\n\n{"input": "d"}\n'
    table = '\ufeffinput,expected,tags\r\n"a, b",c,x; y\r\nd,,\r\n'
    expected = [ExampleGive(input="a, b", expected="c", tags=("x", "y")), ExampleGive(input="d")]
    assert read_examples(_file(tmp_path, "a.jsonl", lines)) == expected
    assert read_examples(_file(tmp_path, "a.csv", table)) == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"input": "a"}\n{"inputs": "b"}\nno', ("line 2: input: Field required", "line 3: no JSON")),
        ("a.csv", 'input,key\na,ok\n"b\nc",not good\n', ("line 4: key",)),
        ("a.csv", "input\na,b\n", ("line 2: it has more fields",)),
        ("a.csv", "question\na\n", ("'question'", "input")),
        ("a.jsonl", "\n", ("no examples",)),
    ],
)
def test_each_wrong_line_is_named(tmp_path: Path, name: str, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_examples(_file(tmp_path, name, text))
    assert all(word in str(refused.value) for word in words), refused.value


def test_many_examples_are_sent_in_parts_that_a_request_takes() -> None:
    small = [ExampleGive(input="?")] * (MAX_ADDED + 1)
    assert [len(part) for part in batches(small)] == [MAX_ADDED, 1]
    large = [ExampleGive(input="x" * 1_000_000)] * 4
    assert [len(part) for part in batches(large)] == [3, 1]
