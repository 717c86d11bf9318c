"""The TypeScript compiler, and Node for what it compiled. `make aimock` installs the compiler."""

import shutil
import subprocess
from pathlib import Path

__all__ = ["compile_typescript", "run_module", "why_no_typescript"]

_COMPILER = Path(__file__).parent / "aimock" / "node_modules" / "typescript" / "bin" / "tsc"
_TIMEOUT_S = 90


def why_no_typescript() -> str | None:
    """Return why TypeScript cannot be compiled here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not _COMPILER.is_file():
        return "the TypeScript compiler is not installed; `make aimock` does it, where npm is"
    return None


def compile_typescript(file: Path) -> None:
    """Compile a module with strict checks to ``.js`` files beside it.

    Raises:
        AssertionError: The compiler reports errors.
    """
    strict = ["--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"]
    done = _node(str(_COMPILER), *strict, "--skipLibCheck", str(file), cwd=file.parent)
    assert done.returncode == 0, done.stdout


def run_module(program: str, directory: Path) -> str:
    """Run JavaScript as a module in a directory, and return what it printed."""
    file = directory / "program.mjs"
    file.write_text(program, "utf-8")
    done = _node(str(file), cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _node(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    node = shutil.which("node")
    assert node is not None
    return subprocess.run([node, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
