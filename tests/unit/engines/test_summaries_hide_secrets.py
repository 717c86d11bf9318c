"""Secrets are redacted before a summary is cut, since a truncated secret would not be recognised."""

from nova_workers.base.observability.redaction import hiding
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.summaries import MAX_SUMMARY_CHARS, one_line, tool_result_summary, tool_use_summary

VALUE = "tok_0123456789abcdef"
BEFORE = "x" * (MAX_SUMMARY_CHARS - 30)


def test_a_secret_is_redacted_before_a_summary_is_cut() -> None:
    call = ToolCall("c1", "get", {}, 0, 0, "completed", (text_block(f"{BEFORE} {VALUE}"),))
    with hiding(Redactor({"KEY": VALUE})):
        told = [
            tool_use_summary("Bash", {"command": f"{BEFORE} {VALUE}"}),
            tool_use_summary("other", {"key": f"{BEFORE} {VALUE}"}),
            tool_result_summary(call),
            one_line(f"{BEFORE}{BEFORE}{BEFORE}{BEFORE}{BEFORE}{VALUE}"),
        ]
    assert not any(VALUE[:4] in summary for summary in told)
    assert VALUE[:4] in tool_result_summary(call)
