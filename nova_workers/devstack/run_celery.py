"""``python -m nova_workers.devstack.run_celery APP PROGRAM [OPTION…]``: Celery's worker or beat alone.

Celery's command line imports all of its commands, and those that other packages add, before it runs one: with Flower's
they are 11 MB in each worker and beat.
"""

import argparse
import logging
import secrets
import sys

from celery.app.utils import find_app
from celery.utils.nodenames import default_nodename, host_format


def main() -> None:
    """Run the program that the arguments name, and exit with its code."""
    options = _parser().parse_args()
    app = find_app(options.app)
    level = logging.getLevelNamesMapping()[options.loglevel.upper()]
    if options.program == "beat":
        # Without a file of the process's id: any number of beats may run.
        app.Beat(loglevel=level, quiet=True).run()
        return
    worker = app.Worker(
        hostname=node_name(options.hostname),
        concurrency=options.concurrency,
        queues=options.queues,
        loglevel=level,
        quiet=True,
    )
    worker.start()
    sys.exit(worker.exitcode)


def node_name(given: str | None) -> str:
    """Return a name that no other node has: nodes with one name share a mailbox, and Flower shows one of them.

    Several workers on a machine, and containers with one host name, differ in the part after the dash.

    Args:
        given: The operator's name; a whole one, with ``@``, is taken as it is.
    """
    if given is not None and "@" in given:
        return host_format(given)
    return host_format(default_nodename(f"{given or 'worker'}-{secrets.token_hex(3)}@%h"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_celery", description=__doc__)
    parser.add_argument("app", help="module:attribute of the Celery app")
    programs = parser.add_subparsers(dest="program", required=True)
    worker, beat = programs.add_parser("worker"), programs.add_parser("beat")
    worker.add_argument("--concurrency", type=int, required=True, help="slots: tasks at once")
    worker.add_argument("--queues", required=True, help="names of queues, with commas between them")
    worker.add_argument("--hostname", help="the worker's name; with an @ the whole, in which %%h is the host")
    for program in (worker, beat):
        program.add_argument("--loglevel", default="warning")
    return parser


if __name__ == "__main__":
    main()
