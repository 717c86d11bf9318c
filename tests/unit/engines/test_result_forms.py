"""What a tool returns has a form that each provider takes, and nothing of it is dropped without words."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.engines.anthropic.request import place_in, with_messages
from nova_workers.engines.mcp.blocks import from_mcp, to_mcp_result
from nova_workers.engines.turn import BlockPlace
from tests.requirements import proves
from tests.support.data import media_samples

PNG = base64.b64encode(media_samples.png()).decode()
PDF = base64.b64encode(media_samples.PDF).decode()
ZIP = base64.b64encode(b"PK\x03\x04" + b"\0" * 96).decode()


def _image(data: str = PNG, media_type: str = "image/png") -> ContentBlock:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _pdf() -> ContentBlock:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}


def _blob(data: str, mime_type: str | None) -> EmbeddedResource:
    return EmbeddedResource(resource=BlobResourceContents(uri="file:///a", mime_type=mime_type, blob=data))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (TextContent(text="a"), text_block("a")),
        (ImageContent(data=PNG, mime_type="image/png"), _image()),
        (ImageContent(data=PNG, mime_type="image/jpg"), _image()),
        (ImageContent(data=PNG, mime_type="application/octet-stream"), _image()),
        (ImageContent(data=f"data:image/png;base64,{PNG}", mime_type="image/png"), _image()),
        (ImageContent(data=f"{PNG[:20]}\n{PNG[20:]}", mime_type="image/png"), _image()),
        (
            ImageContent(data="PHN2Zy8+", mime_type="image/svg+xml"),
            "[Left out: Image (image/svg+xml, about 6 bytes). Models read ",
        ),
        (
            AudioContent(data=PNG, mime_type="audio/wav"),
            f"[Left out: Audio (audio/wav, about {len(PNG) * 3 // 4} bytes). Models read no audio.]",
        ),
        (
            ResourceLink(name="log", uri="file:///l", mime_type="text/plain", size=12, description="All of it"),
            "[Link to log: file:///l (text/plain, 12 bytes). All of it]",
        ),
        (
            EmbeddedResource(resource=TextResourceContents(uri="file:///a", mime_type="text/x-c", text="b")),
            "[file:///a (text/x-c)]\nb",
        ),
        (_blob(PNG, "image/png"), _image()),
        (_blob(PDF, None), _pdf()),
        (
            _blob(_base64("b"), "text/plain; charset=utf-8"),
            "[File file:///a (text/plain; charset=utf-8, about 3 bytes)]\nb",
        ),
        (_blob(_base64("{}"), "application/json"), "[File file:///a (application/json, about 3 bytes)]\n{}"),
        (_blob(ZIP, "application/zip"), "[Left out: File file:///a (application/zip, about 102 bytes). Models read "),
        (_blob("%", "text/plain"), "[Left out: File file:///a (text/plain, about 0 bytes). Models read "),
    ],
)
@proves("engine.tool-result-forms")
def test_each_kind_of_content_has_a_form(content: Any, block: ContentBlock | str) -> None:
    (made,) = from_mcp(CallToolResult(content=[content]))
    if isinstance(block, str):
        assert made["type"] == "text"
        assert made["text"].startswith(block)
    else:
        assert made == block


@pytest.mark.parametrize(
    ("texts", "structured", "added"),
    [
        ((), {"a": 1}, ['{"a": 1}']),
        (("See below",), {"a": 1}, ['{"a": 1}']),
        (('{ "a": 1 }',), {"a": 1}, []),
        (("b",), {"result": "b"}, []),
        (("1", "c"), {"result": [1, "c"]}, []),
        (("1",), {"result": [1, 2]}, ['{"result": [1, 2]}']),
        ((), {"a": "\ud800"}, ['{"a": "\ufffd"}']),
    ],
)
@proves("engine.tool-result-forms")
def test_structured_content_is_added_where_no_text_has_it(
    texts: tuple[str, ...], structured: Any, added: list[str]
) -> None:
    result = CallToolResult(content=[TextContent(text=text) for text in texts], structured_content=structured)
    assert [block["text"] for block in from_mcp(result)] == [*texts, *added]


def _failed(*parts: ContentBlock, call_id: str = "t1") -> ContentBlock:
    return {"type": "tool_result", "tool_use_id": call_id, "is_error": True, "content": list(parts)}


def _sent(*content: ContentBlock) -> list[ContentBlock]:
    return with_messages({}, [Message("user", content)], 0)["messages"][0]["content"]


@proves("engine.tool-result-forms")
def test_images_of_a_failed_call_follow_the_results() -> None:
    failed = _failed(text_block("no"), text_block(" "), _image(), _pdf())
    done = {"type": "tool_result", "tool_use_id": "t2", "content": [_image()]}
    sent = _sent(text_block("joined"), failed, done)
    follows = text_block("[What else this call returned follows the results.]")
    assert sent == [
        {**failed, "content": [text_block("no"), follows]},
        done,
        text_block("[Of the failed call t1:]"),
        _image(),
        _pdf(),
        text_block("joined"),
    ]


@proves("engine.refused-content")
def test_a_block_that_the_provider_names_is_found_in_the_conversation() -> None:
    content = (text_block(" "), text_block("joined"), _failed(text_block(""), text_block("no"), _image()))
    messages = [Message("user", ()), Message("user", content)]
    assert place_in(messages, BlockPlace(0, 0, 0)) == BlockPlace(1, 2, 1)
    assert place_in(messages, BlockPlace(0, 0)) == BlockPlace(1, 2)
    assert place_in(messages, BlockPlace(0, 2)) == BlockPlace(1, 2, 2)
    assert place_in(messages, BlockPlace(0, 3)) == BlockPlace(1, 1)
    for added in (BlockPlace(0, 0, 1), BlockPlace(0, 1)):
        assert place_in(messages, added) in (None, BlockPlace(1, 2))
    assert place_in(messages, BlockPlace(0, 4)) is None
    assert place_in(messages, BlockPlace(1, 0)) is None


@pytest.mark.parametrize(
    ("content", "failed", "texts", "is_error"),
    [
        ((text_block("a"), text_block(" "), text_block("b")), True, ["a\nb"], True),
        ((), True, ["The tool failed without a message."], True),
        ((text_block("a"), _image()), True, ["The call failed: a", None], False),
        ((_image(),), True, ["The call failed: The tool failed without a message.", None], False),
        ((text_block(""),), False, ["(no output)"], False),
        (({"type": "image", "source": {"type": "url", "url": "https://a"}},), False, ["[image at https://a]"], False),
        (({"type": "odd"},), False, ["[Left out: odd, which the program does not take.]"], False),
    ],
)
@proves("engine.tool-result-forms")
def test_programs_get_results_whose_text_the_model_sees(
    content: tuple[ContentBlock, ...], failed: bool, texts: list[str | None], is_error: bool
) -> None:
    result = to_mcp_result(content, failed=failed)
    assert [part.text if isinstance(part, TextContent) else None for part in result.content] == texts
    assert result.is_error is is_error
    json.dumps(result.model_dump(mode="json"))
