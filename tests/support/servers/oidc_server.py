"""`oidc-provider`, a provider of OpenID Connect that others wrote, as a child process on loopback; by `make aimock`."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

_PACKAGE = Path(__file__).parent / "aimock"
_PROGRAM = _PACKAGE / "oidc_server.mjs"

CLIENT_ID = "console"
DEVICE_CLIENT_ID = "commands"
CLIENT_SECRET = "a secret of the console: %&+"
_MOST_STEPS = 10


def why_no_oidc_server() -> str | None:
    """Return why the provider cannot run here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not (_PACKAGE / "node_modules" / "oidc-provider").is_dir():
        return "oidc-provider is not installed; `make aimock` does it, where npm is"
    return None


@contextmanager
def oidc_server(directory: Path, *, redirect_uri: str, people: Mapping[str, Mapping[str, Any]]) -> Generator[str]:
    """Run the provider for the block, and give its issuer.

    Args:
        people: The claims of each person, by the name that it signs in with.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = json.dumps({"port": port, "redirect_uris": [redirect_uri], "people": people})
    with (directory / "oidc.log").open("wb") as log:
        process = subprocess.Popen(["node", str(_PROGRAM), given], stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            # It ends, and so does the line, if it cannot start.
            while (line := process.stdout.readline()) and b"ready" not in line:
                pass
            assert line, (directory / "oidc.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


async def sign_in_at(address: str, person: str) -> str:
    """Sign in at the provider's own pages as a browser does, and return the address that it sends the browser to."""
    async with httpx2.AsyncClient(timeout=30) as browser:
        answer = await browser.get(address)
        for _ in range(_MOST_STEPS):
            if answer.is_redirect:
                target = urljoin(str(answer.url), answer.headers["location"])
                if "code=" in target or "error=" in target:
                    return target
                answer = await browser.get(target)
                continue
            form = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            assert form, answer.text
            fields = dict(re.findall(r'<input[^>]*name="(prompt)"[^>]*value="([^"]+)"', answer.text))
            answer = await browser.post(
                urljoin(str(answer.url), unescape(form[1])), data={**fields, "login": person, "password": "any"}
            )
    raise AssertionError("the provider sent the browser nowhere")


async def confirm_code(address: str, person: str, *, refuse: bool = False) -> None:
    """Confirm the code of a device at the provider's own pages, whose address has it, as a browser does."""
    async with httpx2.AsyncClient(timeout=30) as browser:
        answer, has_refused = await browser.get(address), False
        for _ in range(_MOST_STEPS):
            if answer.is_redirect:
                answer = await browser.get(urljoin(str(answer.url), answer.headers["location"]))
                continue
            form = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            # After a refusal the provider asks for another code.
            if form is None or has_refused:
                return
            is_confirmation = 'name="user_code"' in answer.text
            fields = dict(re.findall(r'<input[^>]*name="(prompt|xsrf|user_code)"[^>]*value="([^"]+)"', answer.text))
            has_refused = refuse and is_confirmation
            if has_refused:
                fields["abort"] = "yes"
            fields |= {"confirm": "yes"} if is_confirmation else {"login": person, "password": "any"}
            answer = await browser.post(urljoin(str(answer.url), unescape(form[1])), data=fields)
    raise AssertionError("the provider showed no end")
