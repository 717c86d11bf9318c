"""``python -m nova_workers.devstack``: what `nova up` becomes."""

import importlib
import sys

from nova_workers.program import guard_streams, leave_on_interrupt

__all__ = ["main"]


def main() -> int:
    """Load the stack, run it and return the exit code."""
    leave_on_interrupt()
    guard_streams()
    try:
        return importlib.import_module("nova_workers.devstack.run").main()
    finally:
        # The stack is stopped, or its second Ctrl-C killed it.
        leave_on_interrupt()


if __name__ == "__main__":
    sys.exit(main())
