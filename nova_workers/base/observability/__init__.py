"""What the operator sees: logs, metrics and traces. A leaf: it knows no other room but `config`."""
