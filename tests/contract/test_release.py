"""What describes a release: its provenance, and the packages whose licences are checked."""

from __future__ import annotations

import hashlib
import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import proves

_ENVIRONMENT = Path(__file__).resolve().parents[2] / "deploy" / "environment"
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


@proves("security.packages")
def test_every_package_of_a_lock_has_its_licence_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = 'aiohttp==3.14.5 ; python_full_version < "3.15" \\\n    --hash=sha256:aa\n    # via aiogram\nUvLoop==0.23\n'

    assert _script("check_licences.py", monkeypatch)["names_of"](lock) == ["UvLoop", "aiohttp"]
