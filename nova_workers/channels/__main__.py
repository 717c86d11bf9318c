"""``python -m nova_workers.channels``: the program of `nova channels`."""

import importlib
import sys

from nova_workers.base.program import guard_streams, leave_on_interrupt


def main() -> int:
    """Load the channel, run it and return the exit code."""
    leave_on_interrupt()
    guard_streams()
    return importlib.import_module("nova_workers.channels.run").main()


if __name__ == "__main__":
    sys.exit(main())
