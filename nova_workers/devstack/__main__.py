"""``python -m nova_workers.devstack``: what `nova up` becomes."""

import argparse
import sys

from nova_workers.config import load_settings
from nova_workers.devstack.run import run_stack
from nova_workers.devstack.stack import StackOptions
from nova_workers.errors import NovaError


def main() -> int:
    """Run the stack and return the exit code."""
    parser = argparse.ArgumentParser(prog="nova up")
    parser.add_argument("--port", type=int)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    try:
        return run_stack(load_settings(), StackOptions(port=options.port, workers=options.workers))
    except NovaError as error:
        sys.stderr.write(f"nova: {error.message}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
