"""Chunks and events of a streamed response."""

import asyncio
import json
from typing import Any


async def event(writer: asyncio.StreamWriter, name: str, data: dict[str, Any]) -> None:
    """Send one event."""
    await chunk(writer, f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())


async def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send one chunk of the body."""
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()
