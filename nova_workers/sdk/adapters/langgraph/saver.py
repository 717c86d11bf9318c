"""Keeps the checkpoints of a graph as records, which become steps of the journal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_core import to_json

from nova_workers.contracts.user_agents import MAX_STEP_BYTES
from nova_workers.sdk.adapters.langgraph.trees import change, changed, tree_of, value_of
from nova_workers.sdk.durable import StepFailed

_MARGIN_BYTES: Final = 1_000
"""Of a step, beside its records."""
_TURNS_OF_LOOP: Final = 50
"""How long a record waits for others, with which it becomes one step, whatever a turn takes."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something that the graph saved: a checkpoint, or what a node wrote.

    Attributes:
        content: As JSON.
        size_bytes: Of the content.
        task_id: Of the node, if it is what one wrote.
        kept: Done once the journal has it.
    """

    content: Mapping[str, Any]
    size_bytes: int
    task_id: str | None
    kept: asyncio.Future[None] = field(compare=False)


class JournalSaver(InMemorySaver):
    """A saver in memory whose changes are records: with all of them it is what it was, in any process.

    A checkpoint has of each channel what changed, and of a list that grew what is new in it: a conversation costs its
    length once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin without a checkpoint.

        Args:
            loop: Where records are taken. Graphs that a node calls without waiting save from other threads.
        """
        super().__init__()
        self._loop = loop
        self._lock = threading.Lock()
        self._trees: dict[tuple[str, str], Any] = {}
        """The latest value of each channel, by namespace and name."""
        self._waiting: list[Record] = []
        """Records that were not taken yet."""
        self._open: set[asyncio.Future[None]] = set()
        """Futures of all records that the journal does not have."""
        self._closed = False
        self._arrived = asyncio.Event()

    async def take(self, graph: asyncio.Task[None]) -> list[Record]:
        """Return the oldest records that the journal does not have, as many as a step holds; none after the graph."""
        while not self._waiting:
            if graph.done():
                return []
            self._arrived.clear()
            arrived = asyncio.create_task(self._arrived.wait())
            await asyncio.wait({arrived, graph}, return_when=asyncio.FIRST_COMPLETED)
            arrived.cancel()
        # A node's writes and the checkpoint after them come one right after the other.
        for _ in range(_TURNS_OF_LOOP):
            await asyncio.sleep(0)
        with self._lock:
            size, count = 0, 0
            for record in self._waiting:
                size += record.size_bytes + 1
                if count and size > MAX_STEP_BYTES - _MARGIN_BYTES:
                    break
                count += 1
            taken = self._waiting[:count]
            # In place: the library makes shallow copies of a saver.
            del self._waiting[:count]
        return taken

    def kept(self, records: Sequence[Record]) -> None:
        """Take note that the journal has these."""
        for record in records:
            if not record.kept.done():
                record.kept.set_result(None)
            self._open.discard(record.kept)

    def close(self) -> None:
        """Stop all that waits for the journal, which gets no more."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for future in self._open:
                future.cancel()
            self._open.clear()

    def restore(self, thread_id: str, content: Mapping[str, Any]) -> None:
        """Do again what a record says."""
        place: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": content["namespace"]}
        if "writes" in content:
            place["checkpoint_id"] = content["checkpoint_id"]
            writes = [(channel, value_of(self.serde, tree)) for channel, tree in content["writes"]]
            super().put_writes({"configurable": place}, writes, content["task_id"], content["task_path"])
            return
        if content["parent"] is not None:
            place["checkpoint_id"] = content["parent"]
        values: dict[str, Any] = {}
        for channel, by in content["values"].items():
            key = content["namespace"], channel
            self._trees[key] = changed(self._trees.get(key), by)
            values[channel] = value_of(self.serde, self._trees[key])
        checkpoint = value_of(self.serde, content["checkpoint"])
        checkpoint["channel_values"] = values
        metadata = value_of(self.serde, content["metadata"])
        super().put({"configurable": place}, checkpoint, metadata, content["new_versions"])

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint. See `BaseCheckpointSaver.put`."""
        return self._put(config, checkpoint, metadata, new_versions)[0]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, and wait until the journal has it."""
        saved, record = self._put(config, checkpoint, metadata, new_versions)
        await record.kept
        return saved

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a node wrote. See `BaseCheckpointSaver.put_writes`."""
        self._put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a node wrote, and wait until the journal has it."""
        await self._put_writes(config, writes, task_id, task_path).kept

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[RunnableConfig, Record]:
        place = config.get("configurable", {})
        namespace = str(place.get("checkpoint_ns", ""))
        saved = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        with self._lock:
            content = {
                "namespace": namespace,
                "parent": place.get("checkpoint_id"),
                "checkpoint": tree_of(self.serde, saved),
                "metadata": tree_of(self.serde, get_checkpoint_metadata(config, metadata)),
                "new_versions": dict(new_versions),
                "values": {
                    channel: self._change(namespace, channel, checkpoint["channel_values"][channel])
                    for channel in new_versions
                    if channel in checkpoint["channel_values"]
                },
            }
            stored = super().put(config, checkpoint, metadata, new_versions)
            return stored, self._save(content, None)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Record:
        place = config.get("configurable", {})
        with self._lock:
            content = {
                "namespace": str(place.get("checkpoint_ns", "")),
                "checkpoint_id": place["checkpoint_id"],
                "task_id": task_id,
                "task_path": task_path,
                "writes": [[channel, tree_of(self.serde, value)] for channel, value in writes],
            }
            super().put_writes(config, writes, task_id, task_path)
            return self._save(content, task_id)

    def _change(self, namespace: str, channel: str, value: Any) -> Mapping[str, Any]:
        tree = tree_of(self.serde, value)
        before, self._trees[namespace, channel] = self._trees.get((namespace, channel)), tree
        return change(before, tree)

    def _save(self, content: Mapping[str, Any], task_id: str | None) -> Record:
        size = len(to_json(content))
        if size > MAX_STEP_BYTES - _MARGIN_BYTES:
            parts = content["values"] if "values" in content else dict(content["writes"])
            largest = max(parts, key=lambda name: len(to_json(parts[name])), default="")
            raise StepFailed(
                f"A checkpoint of the graph is too large: {size:,} bytes as JSON, and the journal takes "
                f"{MAX_STEP_BYTES - _MARGIN_BYTES:,} a checkpoint; the largest part is the channel {largest!r}. Keep "
                "large values elsewhere, and where they are in the state."
            )
        record = Record(content, size, task_id, self._loop.create_future())
        if self._closed:
            record.kept.cancel()
            return record
        self._waiting.append(record)
        self._open.add(record.kept)
        self._loop.call_soon_threadsafe(self._arrived.set)
        return record
