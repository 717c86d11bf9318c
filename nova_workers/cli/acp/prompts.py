"""Prompts of editors as messages, and the instructions of runs for an editor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from nova_workers.cli.acp.editor import refusal
from nova_workers.contracts.content import ContentBlock, text_block

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


def message_of(prompt: Sequence[PromptBlock], skills: Mapping[str, str]) -> list[ContentBlock]:
    """Return the message that a prompt is.

    Args:
        prompt: The blocks of the prompt.
        skills: The agent's skills: a text that begins with a slash and one of these names is a command.

    Raises:
        RequestError: It is empty, or has a block that agents of the fleet do not take.
    """
    blocks = [block for index, part in enumerate(prompt) if (block := _block(index, part)) is not None]
    if not blocks:
        raise refusal("The prompt is empty.", field="prompt")
    if blocks[0]["type"] == "text" and blocks[0]["text"].startswith("/"):
        name, _, rest = blocks[0]["text"][1:].partition(" ")
        if name in skills:
            blocks[0] = text_block(f"Use the skill {name!r}. {rest}".rstrip())
    return blocks


def text_of_prompt(prompt: Sequence[PromptBlock]) -> str:
    """Return the text of a prompt that answers a question."""
    return "\n".join(block.text for block in prompt if isinstance(block, TextContentBlock)).strip()


def _block(index: int, part: PromptBlock) -> ContentBlock | None:
    match part:
        case TextContentBlock(text=text):
            return text_block(text) if text else None
        case ImageContentBlock(data=data, mime_type=media_type):
            return _media("image", media_type, data)
        case ResourceContentBlock(uri=uri, name=name):
            return text_block(f"[{part.title or name}]({uri})")
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as blob):
            media_type = blob.mime_type or ""
            if media_type.startswith("image/"):
                return _media("image", media_type, blob.blob)
            if media_type == "application/pdf":
                return _media("document", media_type, blob.blob)
            what = f"{blob.uri} is {media_type or 'of no known type'}"
            raise refusal(f"prompt[{index}]: {what}; agents read text, images and PDFs.", field=f"prompt[{index}]")
        case EmbeddedResourceContentBlock(resource=resource):
            return text_block(f'<resource uri="{resource.uri}">\n{resource.text}\n</resource>')
        case AudioContentBlock():
            raise refusal(f"prompt[{index}]: agents of this fleet take no audio.", field=f"prompt[{index}]")


def _media(kind: str, media_type: str, data: str) -> ContentBlock:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def instructions_of(editor: str | None, cwd: str, *, has_tools: bool, shares_disk: bool) -> str:
    """Return the instructions of a run: where the person works, and how to reach it."""
    where = f"The person works in {editor or 'an editor'}, in the directory {cwd}"
    if shares_disk:
        return f"{where}, which your file tools and commands reach under the same path."
    how = (
        "reach its files and commands with the tools whose names begin with editor_"
        if has_tools
        else "you have no access to it"
    )
    return f"{where} on a machine of their own; {how}. Paths of theirs are absolute."
