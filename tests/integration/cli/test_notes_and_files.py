"""`nova notes`, `nova files` and `nova inbox` against a real fleet."""

import asyncio
from pathlib import Path

import pytest

from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import Sender, SentFileView
from nova_workers.domain.delivery.rules.from_agents import notify
from nova_workers.domain.files.rules import OutgoingFile, send_file
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.ledger.work import Work
from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet

CONTENT = b"\x00\r\n\xc3\xbc"


@pytest.fixture
def sent(fleet: Fleet) -> SentFileView:
    """A file that an agent sent, and a notification."""

    async def send() -> SentFileView:
        database = PostgresDatabase(fleet.env["NOVA_DATABASE_URL"], pool_size=1)
        # A run of its own: what a run has sent already is not sent again, also after a person closed it.
        sender = Sender(fleet.tenant_id or "", "nova", "thr_cli", new_id("run"))
        try:
            await notify(Work(database), sender, "The report\x1b[2J is ready")
            return await send_file(Work(database), sender, OutgoingFile("report.bin", CONTENT, "For you"))
        finally:
            await database.close()

    return asyncio.run(send())


def test_notes_are_written_shown_changed_and_deleted(nova: Nova, tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("# Plan\n\n\x1b[2Jdo it\n")
    made = nova.good("notes", "create", "nova", "The plan", "--content", f"@{tmp_path}/plan.md", "--pin", "--json").json
    assert (made["title"], made["pinned"], made["shared"]) == ("The plan", True, True)
    note_id = made["id"]
    assert note_id in nova.good("notes", "list", "--pinned", "--agent", "nova").out
    shown = nova.good("notes", "show", note_id)
    # A pipe gets the Markdown as it is; notes about it go to stderr, without control characters.
    assert shown.out == "# Plan\n\n\x1b[2Jdo it\n\n"
    assert "The plan" in shown.err
    assert nova.good("notes", "show", note_id, "--json").json["content"] == "# Plan\n\n\x1b[2Jdo it\n"
    assert "Better" in nova.good("notes", "edit", note_id, "--title", "Better").out
    piped = nova.good("notes", "edit", note_id, "--content", "-", "--json", stdin="über").json
    assert (piped["title"], piped["content"]) == ("Better", "über")
    assert nova.good("notes", "unpin", note_id, "--json").json["pinned"] is False
    assert nova.good("notes", "unshare", note_id, "--json").json["shared"] is False
    none_shared = nova.good("notes", "list", "--agent", "nova")
    assert note_id not in none_shared.out
    assert none_shared.err == "No notes are shared. `nova notes list --drafts` shows the others.\n"
    assert "draft" in nova.good("notes", "list", "--drafts").out
    assert nova.good("notes", "share", note_id, "--json").json["shared"] is True
    assert nova.good("notes", "pin", note_id, "--json").json["pinned"] is True
    assert nova.good("notes", "delete", note_id, "--json").json == {"deleted": [note_id]}
    assert nova("notes", "show", note_id).code == 1


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("notes", "create", "nobody", "x"), "nobody"),
        (("notes", "create", "Not A Slug", "x"), "agent_id"),
        (("notes", "create", "nova", " "), "title"),
        (("notes", "create", "nova", "x", "--content", "@/nowhere/x.md"), "/nowhere/x.md"),
        (("notes", "edit", "note_nowhere"), "Nothing to change"),
        (("notes", "edit", "note_nowhere", "--title", "x"), "note_nowhere"),
        (("files", "get", "file_nowhere"), "file_nowhere"),
        (("files", "delete", "file_nowhere"), "file_nowhere"),
    ],
)
def test_a_failure_is_reported_in_one_line(nova: Nova, arguments: tuple[str, ...], shown: str) -> None:
    done = nova(*arguments)
    assert done.code == 1
    assert shown in done.err
    assert len(done.err.splitlines()) == 1


def test_files_are_listed_fetched_and_deleted(
    nova: Nova, sent: SentFileView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = nova.good("files", "list", "--thread", "thr_cli").out
    assert sent.id in listed
    assert "For you" in listed
    assert nova.good("files", "get", sent.id).out == "report.bin\n"
    assert (tmp_path / "report.bin").read_bytes() == CONTENT
    refused = nova("files", "get", sent.id)
    assert refused.code == 1
    assert "'report.bin' is there already" in refused.err
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert nova("files", "get", sent.id, "-o", "link").code == 1
    assert not (tmp_path / "elsewhere").exists()
    saved = nova.good("files", "get", sent.id, "-o", "other.bin", "--json").json
    assert (saved["saved"], saved["file"]["id"]) == ("other.bin", sent.id)
    nova.good("files", "get", sent.id, "-o", "other.bin", "--force")
    assert nova("files", "get", sent.id, "-o", "no/such/place").code == 1
    assert nova.good("files", "delete", sent.id).out == f"deleted {sent.id}\n"
    assert nova("files", "get", sent.id).code == 1


def test_the_inbox_shows_deliveries(nova: Nova, sent: SentFileView) -> None:
    shown = nova.good("inbox").out
    assert f"{sent.id} report.bin: For you" in shown
    assert "The report[2J is ready" in shown
    assert "\x1b" not in shown
    items = nova.good("inbox", "--kind", "file", "--agent", "nova", "--status", "pending", "--json").json["items"]
    assert items[0]["payload"]["file_id"] == sent.id
    assert {item["kind"] for item in items} == {"file"}
    assert nova("inbox", "--kind", "pigeon").code == 2


def test_closed_items_are_listed_on_demand_only(nova: Nova, sent: SentFileView) -> None:
    def listed(*options: str) -> set[str]:
        items = nova.good("inbox", *options, "--limit", "200", "--json").json["items"]
        # Questions of other tests' runs close when they are answered, and not before.
        return {item["id"] for item in items if item["kind"] not in {"question", "approval"}}

    both = listed()
    one = next(iter(both))
    assert nova.good("inbox", "close", one).out == f"closed {one}\n"
    assert (one in listed(), one in listed("--closed"), one in listed("--all")) == (False, True, True)
    assert set(nova.good("inbox", "close", "--all", "--json").json["closed"]) == both - {one}
    assert listed() == set()
    assert both <= listed("--closed")
    assert nova("inbox", "close").err == "nova: Which items? Give ids, or --all.\n"
    assert nova("inbox", "close", "dlv_unknown").code == 1
    assert nova("inbox", "--all", "--closed").code == 1


def test_a_file_goes_to_stdout_byte_for_byte(nova: Nova, sent: SentFileView) -> None:
    with nova.child("files", "get", sent.id, "-o", "-") as child:
        assert child.done().out.encode() == CONTENT
