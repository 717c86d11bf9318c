"""The example of a package (`docs/examples/package`), whose modules are in no path of this process."""

import importlib.util
from pathlib import Path
from typing import Any, Final

from tests.support.data.documents import ROOT

PACKAGE: Final = ROOT / "docs" / "examples" / "package"


def load(path: Path) -> Any:
    """Return a module of a file."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
