"""Work orders, their model jobs and their trails."""
