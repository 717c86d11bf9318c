"""A message from the composer's form: text with attached images, PDFs and text files."""

from base64 import b64encode
from hashlib import sha256
from mimetypes import guess_type

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request

from nova_workers.base.errors import InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.client.client import NovaClient
from nova_workers.console.forms import Form, build, read_form
from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate, ThreadFork

MAX_FILES = 20
_MAX_TEXT_BYTES = 8 * 1024 * 1024

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that models read and pages show. Not SVG, which can contain scripts."""
_PDF = "application/pdf"


async def read_message(request: Request) -> tuple[Form, list[ContentBlock], InvalidInput | None]:
    """Return the composer's form, the blocks of its files, and the problem of a file that models do not read."""
    sent = await request.form(max_files=MAX_FILES, max_part_size=_MAX_TEXT_BYTES)
    files = [value for value in sent.getlist("files") if isinstance(value, UploadFile) and value.filename]
    try:
        form = await read_form(request)
        try:
            return form, [await _block(file) for file in files], None
        except InvalidInput as problem:
            return form, [], problem
    finally:
        await sent.close()


def message_of(text: str, files: list[ContentBlock]) -> str | list[ContentBlock]:
    """Return the message of a text and files, as the API takes it.

    Raises:
        InvalidInput: There is neither.
    """
    if not text.strip() and not files:
        raise InvalidInput("Write a message, or attach a file.", field="message")
    return [*files, *([text_block(text)] if text.strip() else [])] if files else text


async def send_in_fork(
    client: NovaClient,
    thread_id: str,
    parent_turn_id: str | None,
    agent_id: str,
    message: str | list[ContentBlock],
    *,
    key: str | None,
) -> RunView:
    """Send a message in a fork of a conversation that ends with a turn; without one, in a new conversation.

    Args:
        client: Of the person.
        thread_id: The conversation.
        parent_turn_id: The last turn of the fork.
        agent_id: The agent of a new conversation.
        message: What is sent.
        key: Of the form, which a person may send again with another message: one fork is made for each, with one run.
    """
    sent = f"{key or new_id('evt')}-{sha256(orjson.dumps(message)).hexdigest()[:16]}"
    values: dict[str, object] = {"message": message}
    if parent_turn_id is None:
        values["agent_id"] = agent_id
    else:
        fork = ThreadFork(turn_id=parent_turn_id)
        values["thread_id"] = (await client.threads.fork(thread_id, fork, idempotency_key=f"{sent}-fork")).id
    return await client.runs.create(build(StatelessRunCreate, values), idempotency_key=sent)


async def _block(file: UploadFile) -> ContentBlock:
    name = file.filename or "file"
    raw = await file.read()
    # What the browser says comes from the name; the API checks the content.
    media_type = file.content_type or guess_type(name)[0] or ""
    if media_type in IMAGES:
        return {"type": "image", "source": _base64(media_type, raw)}
    if media_type == _PDF:
        return {"type": "document", "title": name, "source": _base64(media_type, raw)}
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput(
            f"{name!r} ({media_type or 'of an unknown kind'}) cannot be attached: models read PNG, JPEG, GIF and WebP "
            "images, PDFs, and text in UTF-8.",
            field="files",
        )
    return {"type": "document", "title": name, "source": {"type": "text", "media_type": "text/plain", "data": text}}


def _base64(media_type: str, raw: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": b64encode(raw).decode("ascii")}
