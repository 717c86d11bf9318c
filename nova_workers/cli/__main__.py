"""`nova`, also as `python -m nova_workers.cli`: the entry point, which imports nothing else before it starts."""

from nova_workers.base.program import run_program


def main() -> None:
    """Load the command line and run it."""
    run_program("nova_workers.cli.app")


if __name__ == "__main__":
    main()
