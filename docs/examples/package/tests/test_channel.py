import json
import shutil
from contextlib import contextmanager
from itertools import count

import pytest

from acme_desk.channel import channel
from nova_workers.channels import InboundParts
from nova_workers.sdk.testing.channels import InboundChannelContract


class FolderPlace:
    def __init__(self, folder):
        self._folder = folder
        self._numbers = count()

    def open(self, parts):
        environment = {"DESK_FOLDER": str(self._folder)}
        return channel(InboundParts(parts.name, environment, parts.messages, parts.rests))

    def write(self, conversation, sender, text):
        self._put(json.dumps({"conversation": conversation, "sender": sender, "text": text}))

    def write_nonsense(self):
        self._put("{no message")

    def shown(self, conversation):
        replies = [json.loads(path.read_text("utf-8")) for path in sorted((self._folder / "out").glob("*.json"))]
        return [reply["text"] for reply in replies if reply["conversation"] == conversation]

    @contextmanager
    def broken(self):
        shutil.rmtree(self._folder / "out")
        yield
        (self._folder / "out").mkdir()

    def _put(self, text):
        path = self._folder / "in" / f"{next(self._numbers):04}.json"
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".draft").write_text(text, "utf-8")
        path.with_suffix(".draft").rename(path)


class TestFolderChannel(InboundChannelContract):
    @pytest.fixture
    def place(self, tmp_path):
        return FolderPlace(tmp_path)
