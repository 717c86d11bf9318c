"""The file tools keep how a text is stored, and match across it."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.confined import Confinement
from nova_workers.engines.native.texts import read_text
from tests.requirements import proves
from tests.unit.engines.native.conftest import NativeToolCaller

UTF_16_LE = "\ufeff".encode("utf-16-le")
UTF_16_BE = "\ufeff".encode("utf-16-be")


async def edited(caller: NativeToolCaller, before: bytes, old: str, new: str, *, every: bool = False) -> bytes:
    file = caller.workdir / "f"
    file.write_bytes(before)
    await caller.call("Edit", file_path="f", old_string=old, new_string=new, replace_all=every)
    return file.read_bytes()


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny\r\nz", b"x\r\ny\r\nz\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\rb\r", "a\nb", "x\ny\nz", b"x\ry\rz\r"),
        (b"a\r\nb\nc\r\nd\n", "b\nc\nd", "B\nC\nD", b"a\r\nB\nC\r\nD\n"),
        (b"a\r\nb\nc\r\n", "b", "b\nb2", b"a\r\nb\r\nb2\nc\r\n"),
        (b"a\r\nb\nc\r\n", "b\nc", "bc", b"a\r\nbc\r\n"),
        (b"a\r\nlast", "last", "end", b"a\r\nend"),
        (b"a\r\nlast", "last\n", "one\ntwo\n", b"a\r\none\r\ntwo"),
        (b"last", "a\nlast\n", "", None),
        ("\ufeffa\r\nü\r\n".encode(), "a\nü", "ö\nb", "\ufeffö\r\nb\r\n".encode()),
        (UTF_16_LE + "a\r\nü\r\n".encode("utf-16-le"), "ü", "€𝄞", UTF_16_LE + "a\r\n€𝄞\r\n".encode("utf-16-le")),
        (UTF_16_BE + "a\nü".encode("utf-16-be"), "a\nü", "b", UTF_16_BE + "b".encode("utf-16-be")),
        (b"caf\xe9 \x80 \xb5\r\nx\r\n", "x", "ÿ\n€", b"caf\xe9 \x80 \xb5\r\n\xff\r\n\x80\r\n"),
    ],
)
@proves("tools.stored-texts")
async def test_an_edit_changes_what_it_names_and_no_other_byte(
    caller: NativeToolCaller, before: bytes, old: str, new: str, after: bytes | None
) -> None:
    if after is not None:
        assert await edited(caller, before, old, new) == after
        return
    (caller.workdir / "f").write_bytes(before)
    assert "not found" in await caller.failure("Edit", file_path="f", old_string=old, new_string=new)
    assert (caller.workdir / "f").read_bytes() == before


async def test_all_occurrences_keep_the_line_ends_at_their_places(caller: NativeToolCaller) -> None:
    before = b"a\r\nb\na\nb\r\na\rb"
    assert await edited(caller, before, "a\nb", "x\ny", every=True) == b"x\r\ny\nx\ny\r\nx\ry"


LINES = st.lists(st.tuples(st.sampled_from(["a", "b", "ab", ""]), st.sampled_from(["\n", "\r\n", "\r"])), max_size=8)


@given(lines=LINES, last=st.sampled_from(["", "a", "b"]), old=st.sampled_from(["a", "b\n", "a\nb", "ab\na"]))
def test_a_text_that_is_replaced_by_itself_keeps_every_byte(lines: list[tuple[str, str]], last: str, old: str) -> None:
    data = ("".join(line + end for line, end in lines) + last).encode()
    stored = read_text(data)
    try:
        same, _ = stored.replaced(old, old, every=True, most_chars=10_000)
    except ValueError:
        return
    assert same == data


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n"),
        (b"a\r\nb\n", "x\ny", b"x\ny"),
        (b"", "x\n", b"x\n"),
        ("\ufeffa".encode(), "ü\n", "\ufeffü\n".encode()),
        ("\ufeffa".encode(), "\ufeffü\n", "\ufeffü\n".encode()),
        (UTF_16_LE + "a\r\n".encode("utf-16-le"), "ü\n", UTF_16_LE + "ü\r\n".encode("utf-16-le")),
        (b"caf\xe9\n", "\u00fc\n", b"\xfc\n"),
        # All of it is replaced, so no text is left in the other encoding.
        (b"caf\xe9\n", "日本\n", "日本\n".encode()),
        (b"\x00\x01\xff binary", "x\n", b"x\n"),
    ],
)
@proves("tools.stored-texts")
async def test_a_whole_text_is_written_in_the_form_of_the_one_that_it_replaces(
    caller: NativeToolCaller, before: bytes, content: str, after: bytes
) -> None:
    (caller.workdir / "f").write_bytes(before)
    await caller.call("Write", file_path="f", content=content)
    assert (caller.workdir / "f").read_bytes() == after


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\r\nb\rc\n", "a\nb\nc\n"),
        ("\ufeffü\n".encode(), "ü\n"),
        (UTF_16_BE + "ü\r\n".encode("utf-16-be"), "ü\n"),
        (b"caf\xe9 \x80\n", "café €\n"),
    ],
)
@pytest.mark.parametrize("view_range", [None, [1, 3]])
async def test_a_model_reads_the_text_with_line_feeds_and_a_note_about_a_rare_encoding(
    caller: NativeToolCaller, data: bytes, shown: str, view_range: list[int] | None
) -> None:
    (caller.workdir / "f").write_bytes(data)
    first, *notes = (await caller.outcome("Read", file_path="f", view_range=view_range)).content
    assert first["text"] == shown
    assert bool(notes) is (data[:1] in (b"\xfe", b"c"))


async def test_lines_of_a_text_in_utf_16_are_counted(caller: NativeToolCaller) -> None:
    (caller.workdir / "f").write_bytes(UTF_16_LE + "one\u2028\r\ntwo\r\nthree".encode("utf-16-le"))
    first, _ = (await caller.outcome("Read", file_path="f", view_range=[2, 2])).content
    assert first["text"] == "two\n"


@pytest.mark.parametrize(
    "data",
    [
        "日本、".encode("shift-jis"),
        # Mostly UTF-8, with a broken byte: what is added could not be right for all of it.
        "größer".encode() + b"\xff",
        "\ufeffa".encode("utf-32-le"),
        UTF_16_LE + b"a",
        b"\x00\xe9",
    ],
)
@proves("tools.stored-texts")
async def test_a_file_in_another_encoding_is_refused_and_stays_as_it_is(caller: NativeToolCaller, data: bytes) -> None:
    (caller.workdir / "f").write_bytes(data)
    for name, given_ in (("Read", {}), ("Edit", {"old_string": "a", "new_string": "b"})):
        assert "no text in UTF-8, in UTF-16" in await caller.failure(name, file_path="f", **given_)
    assert (caller.workdir / "f").read_bytes() == data


async def test_a_character_that_the_encoding_does_not_have_is_named(caller: NativeToolCaller) -> None:
    (caller.workdir / "f").write_bytes(b"caf\xe9")
    message = await caller.failure("Edit", file_path="f", old_string="caf", new_string="日")
    assert "Windows-1252, which has no '日'" in message
    assert (caller.workdir / "f").read_bytes() == b"caf\xe9"


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600, 0o4755])
@pytest.mark.parametrize("tool", ["Write", "Edit"])
@proves("tools.stored-texts")
async def test_permissions_are_kept_but_for_another_users_rights(
    caller: NativeToolCaller, mode: int, tool: str
) -> None:
    file = caller.workdir / "run.sh"
    file.write_text("old\n")
    file.chmod(mode)
    status = file.stat()
    given_ = {"content": "new\n"} if tool == "Write" else {"old_string": "old", "new_string": "new"}
    await caller.call(tool, file_path="run.sh", **given_)
    assert file.read_text() == "new\n"
    assert stat.S_IMODE(file.stat().st_mode) == mode & 0o777
    assert (file.stat().st_uid, file.stat().st_gid) == (status.st_uid, status.st_gid)
    assert [each.name for each in caller.workdir.iterdir()] == ["run.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's file")
async def test_the_owner_of_a_file_is_kept(caller: NativeToolCaller) -> None:
    file = caller.workdir / "theirs"
    file.write_text("old")
    os.chown(file, 12345, 12346)
    await caller.call("Write", file_path="theirs", content="new")
    assert (file.read_text(), file.stat().st_uid, file.stat().st_gid) == ("new", 12345, 12346)


async def test_a_link_inside_stays_a_link(caller: NativeToolCaller) -> None:
    (caller.workdir / "real").write_text("old")
    (caller.workdir / "link").symlink_to("real")
    await caller.call("Edit", file_path="link", old_string="old", new_string="new")
    assert (caller.workdir / "link").is_symlink()
    assert (caller.workdir / "real").read_text() == "new"


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    (caller.workdir / "f").write_text("whole")
    confinement = Confinement((str(caller.workdir),))

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="no space"):
        confinement.replace_file(confinement.resolve("f"), lambda _: b"other")
    assert (caller.workdir / "f").read_text() == "whole"
    assert [each.name for each in caller.workdir.iterdir()] == ["f"]


def test_a_reader_sees_the_old_or_the_new_content(caller: NativeToolCaller) -> None:
    (caller.workdir / "f").write_text("old")
    confinement = Confinement((str(caller.workdir),))
    with (caller.workdir / "f").open() as reader:
        confinement.replace_file(confinement.resolve("f"), lambda _: b"another, and longer")
        assert reader.read() == "old"
    assert (caller.workdir / "f").read_text() == "another, and longer"


async def test_a_search_finds_lines_in_each_of_these_encodings(caller: NativeToolCaller) -> None:
    for name, data in {
        "a": UTF_16_LE + "x\r\nfür\r\n".encode("utf-16-le"),
        "b": "\ufefffür\r\n".encode(),
        "c": b"f\xfcr\n",
        "d": "für".encode(),
    }.items():
        (caller.workdir / name).write_bytes(data)
    found = (await caller.call("Grep", pattern="^für$")).splitlines()
    assert [line.removeprefix(f"{caller.workdir}/") for line in found] == ["a:2:für", "b:1:für", "c:1:für", "d:1:für"]
