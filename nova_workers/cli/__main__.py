"""`nova`, also as `python -m nova_workers.cli`: the entry point, which is there before anything is loaded."""

import importlib

from nova_workers.program import guard_streams, leave_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it."""
    leave_on_interrupt()
    guard_streams()
    try:
        importlib.import_module("nova_workers.cli.app").main()
    finally:
        leave_on_interrupt()


if __name__ == "__main__":
    main()
