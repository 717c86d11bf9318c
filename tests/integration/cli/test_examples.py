"""The examples of the documents: each is a project or a package whose own tests pass, as a reader runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import proves
from tests.support.data.documents import ROOT

_EXAMPLES = ROOT / "docs" / "examples"


# Each brings a fleet up. `test_testing_kit.py` runs the tests of the first beside those of a project.
@pytest.mark.long
@pytest.mark.parametrize("name", ["support", "research", "nightly", "package"])
@proves("docs.examples")
def test_the_tests_of_an_example_pass(name: str, tmp_path: Path) -> None:
    project = shutil.copytree(_EXAMPLES / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=short"],
        cwd=project,
        # No test of theirs may reach a provider, whatever the environment has.
        env={**os.environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "NOVA_MODEL__BASE_URL": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
