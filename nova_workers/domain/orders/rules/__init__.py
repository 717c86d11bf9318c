"""Work orders: validated, idempotent, bound by a policy, with results that are safe for customers."""
