"""`nova tenants`, against a real fleet."""

from tests.requirements import proves
from tests.support.processes.command_line import Nova


@proves("tenants.operator", "tenants.end")
def test_a_tenant_is_made_used_changed_and_ended(nova: Nova) -> None:
    key = nova.good("tenants", "create", "Acme", "--id", "cli-acme", "--timezone", "Europe/Oslo").out.strip()
    assert nova.good("tenant", "show", "--api-key", key, "--json").json["id"] == "cli-acme"
    assert "cli-acme" in nova.good("tenants", "list").out
    changed = nova.good("tenants", "edit", "cli-acme", "--name", "Acme Ltd", "--pause", "--max-running", "3", "--json")
    assert (changed.json["name"], changed.json["state"], changed.json["max_running"]) == ("Acme Ltd", "paused", 3)
    assert "active" in nova.good("tenants", "edit", "cli-acme", "--resume", "--max-running", "none").out
    refused = nova("tenants", "edit", "cli-acme")
    assert (refused.code, "Nothing to change" in refused.err) == (1, True)
    refused = nova("tenants", "delete", "cli-acme", "--confirm", "Acme")
    assert (refused.code, "'Acme Ltd'" in refused.err) == (1, True)
    nova.good("tenants", "delete", "cli-acme", "--confirm", "Acme Ltd")
    assert nova("tenant", "show", "--api-key", key).code == 1
