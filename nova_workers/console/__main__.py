"""``python -m nova_workers.console [ADDRESS]``: print a one-time login, as `nova console --login` does."""

import sys

from nova_workers.base.errors import NovaError
from nova_workers.console.server import login_link


def main() -> int:
    """Print the link, on a terminal only, and return the exit code."""
    if not sys.stdout.isatty():
        sys.stderr.write(
            "nova: a one-time login is shown on a terminal only: other output is often kept as a log. Run this on a "
            "terminal (in a container: with `-t`).\n"
        )
        return 1
    try:
        sys.stdout.write(login_link(*sys.argv[1:2]) + "\n")
    except NovaError as error:
        sys.stderr.write(f"nova: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
