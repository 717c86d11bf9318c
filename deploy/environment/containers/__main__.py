"""Proves the containers: builds the images, runs `deploy/compose.yaml` whole, and breaks it under load.

`make containers`, or ``python -m deploy.environment.containers [--keep] [--no-upgrade]``, as one who may use Docker.
Images that cannot be pulled are made on this machine: the base by `debootstrap`, as root, and Postgres and Valkey from
the wheels of the extra `local`. Everything is in a project of its own, with free ports, and is removed at the end.
"""

from __future__ import annotations

import argparse
import sys

from deploy.environment.containers.bases import Bases, NoImages
from deploy.environment.containers.fleet import Fleet
from deploy.environment.containers.proofs import prove


def main() -> int:
    """Build, prove, and print a line for each proof. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(prog="make containers")
    parser.add_argument("--keep", action="store_true", help="leave the fleet running")
    parser.add_argument("--no-upgrade", action="store_true", help="leave out the upgrade from the release before")
    options = parser.parse_args()
    try:
        bases = Bases.find()
    except NoImages as reason:
        print(f"containers: skipped: {reason}")
        return 0
    fleet = Fleet(bases)
    try:
        return prove(fleet, upgrade=not options.no_upgrade)
    finally:
        if not options.keep:
            fleet.remove()


if __name__ == "__main__":
    sys.exit(main())
