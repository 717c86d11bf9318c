"""`python -m nova_workers.cli` is `nova`."""

from nova_workers.cli.app import main

main()
