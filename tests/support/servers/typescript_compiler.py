"""The TypeScript compiler, and Node for what it compiled. `make programs` installs the compiler."""

import shutil
import subprocess
from pathlib import Path

from tests.support.data.documents import ROOT, blocks

_COMPILER = ROOT / "deploy" / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
"""That of the client for TypeScript."""
_TIMEOUT_S = 90
# Node's own types are no part of the compiler.
_NODE = """
declare module "node:crypto" {
  export function createHmac(kind: string, key: string): {
    update(text: string): { digest(form: "hex"): string };
  };
}
"""


def why_no_typescript() -> str | None:
    """Return why TypeScript cannot be compiled here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not _COMPILER.is_file():
        return "the TypeScript compiler is not installed; `make programs` does it, where npm is"
    return None


def compile_order_example(directory: Path) -> None:
    """Compile the documents' example of work orders to ``example.js``, with strict checks, against the contract.

    Raises:
        AssertionError: The compiler reports errors.
    """
    (example,) = [block.text for block in blocks("typescript") if "keyHash" in block.text]
    contract = ROOT / "docs" / "contracts" / "work-orders-v1.ts"
    (directory / "work-orders-v1.ts").write_text(contract.read_text("utf-8"), "utf-8")
    (directory / "node.d.ts").write_text(_NODE, "utf-8")
    (directory / "example.ts").write_text(f'/// <reference path="./node.d.ts" />\n{example}', "utf-8")
    (directory / "package.json").write_text('{"type": "module"}', "utf-8")
    _compile(directory / "example.ts")


def _compile(file: Path) -> None:
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
