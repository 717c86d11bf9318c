"""What describes a release: its provenance, and the packages whose licences are checked."""

from __future__ import annotations

import hashlib
import re
import runpy
import sys
import threading
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from models import migrate
from tests.requirements import proves
from tests.support.data import previous_release

_ENVIRONMENT = Path(__file__).resolve().parents[2] / "deploy" / "environment"
_LOCK = _ENVIRONMENT.parents[1] / "requirements.txt"
_AT = datetime(2026, 11, 23, tzinfo=UTC)


def _script(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "path", [str(_ENVIRONMENT), *sys.path])
    return runpy.run_path(str(_ENVIRONMENT / name))


def test_the_provenance_names_files_commit_and_locks_by_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(b"wheel").hexdigest()

    made = _script("release.py", monkeypatch)["statement"](
        {"nova.whl": digest}, commit="c" * 40, locks={"requirements.txt": "d" * 64}, began=_AT, ended=_AT
    )

    assert made["subject"] == [{"name": "nova.whl", "digest": {"sha256": digest}}]
    definition = made["predicate"]["buildDefinition"]
    assert {"name": "source", "digest": {"gitCommit": "c" * 40}} in definition["resolvedDependencies"]
    assert {"name": "requirements.txt", "digest": {"sha256": "d" * 64}} in definition["resolvedDependencies"]
    assert made["predicate"]["runDetails"]["metadata"]["startedOn"] == "2026-11-23T00:00:00+00:00"


def test_upgrades_are_tested_from_the_newest_release_of_the_changelog() -> None:
    changelog = (_LOCK.parent / "CHANGELOG.md").read_text("utf-8")
    project = tomllib.loads((_LOCK.parent / "pyproject.toml").read_text("utf-8"))["project"]
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    before = [version for version in released if version != project["version"]]
    # Between two releases the version is one of development; at a release, the newest entry is the release itself.
    assert previous_release.VERSION == before[0], "change tests/support/data/previous_release.py with each release"
    assert previous_release.REVISION == migrate.OLDEST_PROCESSES


def test_a_release_is_refused_while_its_baseline_is_behind_its_migrations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_behind = _script("release.py", monkeypatch)["baseline_is_behind"]
    (tmp_path / "versions").mkdir()
    (tmp_path / "baseline.sql").write_text("-- The schema.\n-- Revision: 0007\n")
    (tmp_path / "versions" / "0007_seven.py").touch()
    assert is_behind(tmp_path) == ""
    (tmp_path / "versions" / "0008_eight.py").touch()
    assert "0008: run `python -m tests.support.data.baseline`" in is_behind(tmp_path)


def test_the_bill_of_materials_has_the_hashes_of_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = "uvloop==0.23 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\npytz==1.0 \\\n    --hash=sha256:cc\n"
    bom = {"components": [{"name": "UvLoop", "version": "0.23"}, {"name": "nova-workers", "version": "1"}]}

    made = _script("release.py", monkeypatch)["with_hashes"](bom, lock)

    assert made["components"] == [
        {
            "name": "UvLoop",
            "version": "0.23",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": "requirements.txt",
                    "comment": "the files of this version that the lock permits",
                    "hashes": [{"alg": "SHA-256", "content": "aa"}, {"alg": "SHA-256", "content": "bb"}],
                }
            ],
        },
        {"name": "nova-workers", "version": "1"},
    ]


@proves("security.packages")
def test_every_package_of_a_lock_has_its_licence_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = 'aiohttp==3.14.5 ; python_full_version < "3.15" \\\n    --hash=sha256:aa\n    # via aiogram\nUvLoop==0.23\n'

    assert _script("check_licences.py", monkeypatch)["names_of"](lock) == ["UvLoop", "aiohttp"]


@proves("security.packages")
def test_every_locked_version_is_looked_up_among_the_advisories(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, asked = _script("check_advisories.py", monkeypatch), list[tuple[str, str]]()

    with _database_of_advisories(asked, against="starlette") as url:
        with pytest.raises(SystemExit, match=r"starlette \S+: TEST-1: it leaks"):
            script["main"](["--where-reachable", "--database", url])
        script["main"](["--ignore", "TEST-1", "--database", url])

    assert "advisories: none for" in capsys.readouterr().out
    names = _script("check_licences.py", monkeypatch)["names_of"](
        (_ENVIRONMENT.parents[1] / "requirements.txt").read_text()
    )
    assert {name for name, _version in asked} == set(names)
    assert all(re.fullmatch(r"[0-9][\w.]*", version) for _name, version in asked)


def test_without_a_database_of_advisories_only_the_check_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, unreachable = _script("check_advisories.py", monkeypatch)["main"], ["--database", "http://127.0.0.1:9"]

    main(["--where-reachable", *unreachable])
    assert "nothing looked up, http://127.0.0.1:9 cannot be reached" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(unreachable)
    assert ended.value.code == 2


@contextmanager
def _database_of_advisories(asked: list[tuple[str, str]], *, against: str) -> Generator[str]:
    """Serve a database of advisories, in the form of OSV, that has one against a package."""

    class Database(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            packages = [(query["package"]["name"], query["version"]) for query in body["queries"]]
            asked.extend(packages)
            found = {"vulns": [{"id": "TEST-1", "modified": "2026-11-01T00:00:00Z"}]}
            self._answer({"results": [found if name == against else {} for name, _version in packages]})

        def do_GET(self) -> None:
            self._answer({"id": "TEST-1", "modified": "2026-11-01T00:00:00Z", "summary": "it leaks"})

        def _answer(self, value: object) -> None:
            body = orjson.dumps(value)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
