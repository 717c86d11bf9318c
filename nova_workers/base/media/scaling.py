"""Scales images down to what providers take in a conversation of many images.

Once, where an image arrives: in a message, or in the result of a tool. If it were done for each request, a change of it
would change the beginning of every request, which the provider has cached.
"""

import asyncio
import base64
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.media.checks import MAX_IMAGE_CHARS, image_size

MOST_PIXELS: Final = 2_000
"""The most pixels of each side. The Messages API takes 8,000, but 2,000 in a request with more than 20 images, and any
conversation may come to that. Models read at most about 1,600."""
_MOST_GIVEN_CHARS: Final = 48 * 1024 * 1024
_COMMAND: Final = (sys.executable, "-I", "-B", str(Path(__file__).with_name("scaling_child.py")))
_CHILD: Final = Bounds(20.0, MAX_IMAGE_CHARS)
_CHILDREN: Final = 2
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
"""A decoded image may have hundreds of megabytes. A semaphore belongs to a loop."""

_Block = dict[str, Any]


async def with_scaled_images(content: Sequence[_Block]) -> tuple[_Block, ...]:
    """Return content blocks with smaller images instead of those with too many pixels or bytes.

    An image that cannot be scaled stays as it is; `media_problem` says what is wrong with it.
    """
    return tuple([await _scaled(block) if _is_too_large(block) else block for block in content])


def _is_too_large(block: _Block) -> bool:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str() as media_type, "data": str() as data}}:
            if len(data) > MAX_IMAGE_CHARS:
                return len(data) <= _MOST_GIVEN_CHARS
            size = image_size(media_type, data)
            return size is not None and max(size) > MOST_PIXELS
        case _:
            return False


async def _scaled(block: _Block) -> _Block:
    gate = _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_CHILDREN))
    async with gate:
        data: str = block["source"]["data"]
        command = (*_COMMAND, str(MOST_PIXELS), str(MAX_IMAGE_CHARS * 3 // 4))
        done = await run_child(command, _CHILD, env={"PATH": os.defpath}, given=data.encode())
    media_type, _, raw = done.head.partition(b"\n")
    if done.exit_code != 0 or done.omitted_bytes or not raw:
        return block
    source = {"type": "base64", "media_type": media_type.decode(), "data": base64.b64encode(raw).decode()}
    return {**block, "source": source}
