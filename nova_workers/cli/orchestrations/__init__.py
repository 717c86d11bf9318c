"""Commands about orchestrations."""
