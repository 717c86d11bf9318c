"""Wheels of projects: the same from the same files, refused when damaged, and unpacked with their packages."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.config.sections import ToolProject
from nova_workers.base.errors import ConfigurationError, InvalidInput
from nova_workers.base.project_files import digest_of_code
from nova_workers.base.project_folders import unpack_project
from nova_workers.base.wheels import ProjectWheel, locked_requirements, read_wheel
from nova_workers.cli.operations.processes import add_projects
from nova_workers.cli.projects.building import build_wheel
from nova_workers.cli.projects.starter import make_project
from nova_workers.domain.capabilities.rules.user_listings import installed_sources, read_listing
from tests.requirements import proves

TOOL = """
import acme_units
from nova_workers.sdk import tool

@tool
def feet(metres: float) -> float:
    \"\"\"Convert.\"\"\"
    return acme_units.feet(metres)
"""


def _made(folder: Path, wheel: ProjectWheel) -> Path:
    path = folder / wheel.file_name
    path.write_bytes(wheel.to_bytes())
    return path


@proves("projects.built")
def test_a_new_project_is_the_same_wheel_wherever_and_whenever_it_is_built(tmp_path: Path) -> None:
    first, second = (make_project(tmp_path / name, "shop").root for name in ("a", "b"))
    for number, path in enumerate(sorted(second.rglob("*"))):
        os.utime(path, (number, number))
    (second / "tests" / "more.py").write_text("")
    (second / "code" / "__pycache__").mkdir()
    (second / "code" / "__pycache__" / "triage.pyc").write_bytes(b"")
    (second / ".env").write_text("KEY=1")
    built = build_wheel(first)
    assert built.to_bytes() == build_wheel(second).to_bytes()
    assert (built.file_name, sorted(built.files)) == (
        "shop-0.1.0-py3-none-any.whl",
        [
            "agents/assistant.md",
            "code/triage.py",
            "pyproject.toml",
            "skills/style/SKILL.md",
            "tools/articles.py",
            "triggers.yaml",
        ],
    )
    read = read_wheel(_made(tmp_path, built))
    assert (read, digest_of_code(read.files)) == (built, digest_of_code(built.files))
    (second / "agents" / "assistant.md").write_text("---\nname: A\n---\n")
    assert digest_of_code(build_wheel(second).files) == digest_of_code(built.files)
    (second / "code" / "triage.py").write_text("")
    assert digest_of_code(build_wheel(second).files) != digest_of_code(built.files)


def test_a_project_with_a_mistake_is_not_built_and_each_mistake_is_named(tmp_path: Path) -> None:
    root = make_project(tmp_path / "shop", "shop").root
    (root / "tools" / "broken.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(InvalidInput, match=r"^tools/broken.py:1: the module 'tools.broken' cannot be imported"):
        build_wheel(root)
    (root / "pyproject.toml").write_text('[project]\nname = "shop"\ndependencies = ["Acme_Units>=1", "nova-workers"]\n')
    (root / "agents" / "assistant.md").write_text("---\nname: A\ntrsut: x\n---\n")
    with pytest.raises(InvalidInput) as caught:
        build_wheel(root)
    places = [line.partition(" ")[0] for line in caught.value.message.splitlines()]
    assert places == ["agents/assistant.md:3:", "pyproject.toml:", "pyproject.toml:"]
    assert "'acme-units' of `dependencies` is not in requirements.txt" in caught.value.message
    (root / "requirements.txt").write_text("# Ours\nacme-units==1.0\n")
    with pytest.raises(InvalidInput, match=r"requirements.txt:2: expected NAME==VERSION with hashes"):
        build_wheel(root)


def test_a_wheel_that_is_damaged_or_no_projects_is_refused(tmp_path: Path) -> None:
    wheel = ProjectWheel("my-shop", "1.2.0", {"tools/a.py": b"x = 1\n", "pyproject.toml": b""})
    path = _made(tmp_path, wheel)
    assert path.name == "my_shop-1.2.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes().replace(b"x = 1", b"x = 2"))
    with pytest.raises(InvalidInput, match="it is no wheel, or damaged"):
        read_wheel(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("my_shop/__init__.py", "")
    with pytest.raises(InvalidInput, match="it is not as `nova build` wrote it"):
        read_wheel(path)
    outside = _made(tmp_path, ProjectWheel("my-shop", "1.2.0", {"../../etc/x.py": b"", "pyproject.toml": b""}))
    with pytest.raises(InvalidInput, match=r"it has a file '../../etc/x.py'"):
        unpack_project(outside, tmp_path / "root")
    assert not (tmp_path / "root").exists()
    with pytest.raises(InvalidInput, match="it cannot be read"):
        read_wheel(tmp_path / "none-1.0-py3-none-any.whl")
    for given in ({"wheel": "/srv/shop.whl"}, {"name": "a"}, {"wheel": str(path), "folder": "/srv", "name": "my-shop"}):
        with pytest.raises(ValidationError, match="wheel"):
            ToolProject.model_validate(given)


def test_wheels_of_the_command_line_join_the_projects_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [{"name": "shop", "folder": "/srv/shop"}, {"name": "crm", "folder": "/srv/crm", "tenant": "ten_sales"}]
    monkeypatch.setenv("NOVA_TOOLS__PROJECTS", json.dumps(given))
    add_projects([_made(tmp_path, ProjectWheel("shop", "2.0", {"pyproject.toml": b""}))])
    projects = load_settings().tools.projects
    assert [(each.name, each.folder or each.wheel, each.tenant) for each in projects] == [
        ("crm", Path("/srv/crm"), "ten_sales"),
        ("shop", tmp_path / "shop-2.0-py3-none-any.whl", "ten_default"),
    ]
    with pytest.raises(InvalidInput, match="there is no file"):
        add_projects([tmp_path / "none-1.0-py3-none-any.whl"])


def test_a_lock_is_read_line_by_line() -> None:
    lock = (
        "# by uv\nAcme.Units==1.0 ; python_version < '4' \\\n"
        "    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via shop\n"
    )
    assert [(name, version) for name, version, _ in locked_requirements(lock)] == [("acme-units", "1.0")]
    for line in ("acme-units>=1 --hash=sha256:aa", "-r other.txt", "acme-units @ https://example.com/a.whl"):
        with pytest.raises(InvalidInput, match=r"requirements.txt:2: "):
            list(locked_requirements(f"\n{line}\n"))


@proves("projects.packages")
def test_packages_of_the_lock_are_unpacked_beside_the_project_alone_and_its_tools_import_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, units = tmp_path / "packages", tmp_path / "acme_units-1.0-py3-none-any.whl"
    packages.mkdir()
    with zipfile.ZipFile(packages / units.name, "w") as archive:
        archive.writestr("acme_units.py", "def feet(metres):\n    return metres * 3.28\n")
        archive.writestr("acme_units-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme-units\nVersion: 1.0\n")
        archive.writestr(
            "acme_units-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("acme_units-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256((packages / units.name).read_bytes()).hexdigest()
    # The second is installed beside the fleet in another version, or not in this one: neither is asked for.
    lock = f"acme-units==1.0 --hash=sha256:{digest}\nnova-workers==0.0.1 --hash=sha256:{digest}\n"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    files = {"pyproject.toml": b'[project]\nname = "shop"\nversion = "2.0"\n', "tools/convert.py": TOOL.encode()}
    wrong = _made(
        tmp_path, ProjectWheel("shop", "2.0", {**files, "requirements.txt": lock.replace(digest, "0" * 64).encode()})
    )
    with pytest.raises(ConfigurationError, match="its packages cannot be installed"):
        unpack_project(wrong, tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []

    path = _made(tmp_path, ProjectWheel("shop", "2.0", {**files, "requirements.txt": lock.encode()}))
    settings = Settings.model_validate({"home": tmp_path / "home", "tools": {"projects": [{"wheel": str(path)}]}})
    [installed] = [each for each in installed_sources(settings) if each.source.folder is not None]
    assert (installed.source.name, installed.release, installed.problem) == ("project:shop", "2.0", None)
    folder = Path(installed.source.target)
    assert folder.parent == tmp_path / "home" / "projects"
    assert sorted(each.name for each in (folder / ".packages").glob("*.py")) == ["acme_units.py"]
    listing = read_listing(installed.source, installed.digest, tmp_path / "cache")
    assert (listing.problem, [tool.name for tool in listing.tools]) == (None, ["feet"])
    # Found again, without an installer.
    monkeypatch.setenv("PATH", "")
    assert unpack_project(path, tmp_path / "home" / "projects") == folder
