"""``python -m nova_workers.devstack``: the program of `nova up`."""

import importlib
import sys

from nova_workers.base.program import guard_streams, import_sparingly, importing, leave_on_interrupt


def main() -> int:
    """Load the stack, run it and return the exit code."""
    leave_on_interrupt()
    guard_streams()
    try:
        with importing():
            import_sparingly("structlog", "redis")
            program = importlib.import_module("nova_workers.devstack.run")
        return program.main()
    finally:
        # The stack has stopped, or a second Ctrl-C killed it.
        leave_on_interrupt()


if __name__ == "__main__":
    sys.exit(main())
