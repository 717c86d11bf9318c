"""Makes a folder of readable files from the rows of an archive, as they come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from io import BufferedWriter
from pathlib import Path
from typing import Any

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.archive.layout import LINE_KINDS, NOTE_FIELDS, PLAIN_LISTS, dump, place, pretty, skill_file

Row = dict[str, Any]

_PRIVATE = 0o600
_PROGRAM = 0o700


class FolderWriter:
    """Writes rows to their files. Rows of one file come one after the other, or are appended.

    Attributes:
        counts: Rows by table.
        open_runs: Runs that the archive leaves out since they have not ended.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.counts: Counter[str] = Counter()
        self.open_runs = 0
        self._lists: dict[Path, list[Row]] = {}
        self._newest: dict[str, int] = {}
        self._open: tuple[Path, BufferedWriter] | None = None
        self._write: dict[str, Callable[[Row, Row], None]] = {
            "archive": self._archive,
            "end": self._end,
            "agents": self._agent,
            "agent_versions": self._version,
            "skills": self._skill,
            "skill_files": self._skill_file,
            "triggers": self._trigger,
            "notes": self._note,
            "sent_files": self._sent_file,
        }

    def take(self, line: bytes) -> None:
        """Take one line of an archive.

        Raises:
            InvalidInput: A name in it would lead out of the folder, or it is a line of a newer version.
        """
        record: Row = json.loads(line)
        table, row = record["table"], record["row"]
        if table in self._write:
            self._write[table](record, row)
        elif table in LINE_KINDS:
            self._append(self._lines_of(record), {LINE_KINDS[table]: row})
        elif table in PLAIN_LISTS:
            self._list(Path(PLAIN_LISTS[table]), row)
        else:
            raise InvalidInput(f"The archive has {table!r}, which this version does not know. Use a newer one.")
        self.counts[table] += 1

    def close(self) -> None:
        """Write buffered rows, and close every file."""
        self._close_lines()
        for path, rows in self._lists.items():
            self._text(path, pretty(rows))
        for name in ("archive", "end"):
            self.counts.pop(name, None)

    def _archive(self, _: Row, row: Row) -> None:
        self._text(Path("settings.json"), pretty(row))

    def _end(self, _: Row, row: Row) -> None:
        self.open_runs = row["open_runs"]

    def _agent(self, _: Row, row: Row) -> None:
        folder = Path("agents") / place(row["id"])
        self._newest[row["id"]] = row["version"]
        spec = dict(row["spec"])
        instructions = spec.pop("instructions", None)
        if instructions is not None:
            self._text(folder / "instructions.md", instructions)
        self._text(folder / "agent.json", pretty({**row, "spec": spec}))

    def _version(self, _: Row, row: Row) -> None:
        # The newest version is in agent.json and instructions.md, where people can change it.
        if self._newest.get(row["agent_id"]) == row["version"]:
            row = {name: value for name, value in row.items() if name != "spec"}
        self._append(Path("agents") / place(row["agent_id"]) / "versions.jsonl", row)

    def _skill(self, _: Row, row: Row) -> None:
        folder = Path("skills")
        self._text(folder / place(row["name"]) / "SKILL.md", row["skill_md"])
        times = {"created_at": row["created_at"], "updated_at": row["updated_at"]}
        self._text(folder / f"{place(row['name'])}.json", pretty(times))

    def _skill_file(self, _: Row, row: Row) -> None:
        path = Path("skills") / skill_file(row["skill_name"], row["path"])
        self._bytes(path, _raw(row["content"]), mode=_PROGRAM if row["executable"] else _PRIVATE)

    def _trigger(self, _: Row, row: Row) -> None:
        self._list(Path("agents") / place(row["agent_id"]) / "triggers.json", row)

    def _note(self, _: Row, row: Row) -> None:
        front = "".join(f"{name}: {dump(row[name])}\n" for name in NOTE_FIELDS)
        path = Path("agents") / place(row["agent_id"]) / "notes" / f"{place(row['id'])}.md"
        self._text(path, f"---\n{front}---\n{row['content']}")

    def _sent_file(self, _: Row, row: Row) -> None:
        folder = Path("agents") / place(row["agent_id"]) / "files"
        self._bytes(folder / f"{place(row['id'])}.content", _raw(row["content"]))
        self._text(
            folder / f"{place(row['id'])}.json",
            pretty({name: value for name, value in row.items() if name != "content"}),
        )

    def _lines_of(self, record: Row) -> Path:
        if record["thread"] is not None:
            return Path("agents") / place(record["agent"]) / "threads" / f"{place(record['thread'])}.jsonl"
        if record["table"] == "deliveries":
            return Path("deliveries.jsonl")
        if record["table"] == "trigger_firings":
            return Path("agents") / place(record["agent"]) / "firings.jsonl"
        if not record["ended"]:
            return Path("tasks") / "active.jsonl"
        row = record["row"]
        return Path("tasks") / "history" / f"{int(row['id' if record['table'] == 'tasks' else 'task_id'])}.jsonl"

    def _list(self, path: Path, row: Row) -> None:
        # Few and small rows.
        self._lists.setdefault(path, []).append(row)

    def _append(self, path: Path, row: Row) -> None:
        if self._open is None or self._open[0] != path:
            self._close_lines()
            self._open = (path, self._made(path).open("ab"))
        self._open[1].write(dump(row).encode() + b"\n")

    def _close_lines(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _text(self, path: Path, text: str) -> None:
        self._bytes(path, text.encode())

    def _bytes(self, path: Path, content: bytes, *, mode: int = _PRIVATE) -> None:
        target = self._made(path)
        target.write_bytes(content)
        target.chmod(mode)

    def _made(self, path: Path) -> Path:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _raw(content: str) -> bytes:
    return bytes.fromhex(content.removeprefix("\\x"))
