"""A fleet, the command line and other processes that tests start and inspect."""
