"""``python -m nova_workers.devstack.run_celery APP PROGRAM [OPTION…]``: Celery's worker or beat alone.

Celery's command line imports all of its commands, and those that other packages add, before it runs one: with Flower's
they are 11 MB in each worker and beat.
"""

import argparse
import logging
import sys

from celery.app.utils import find_app
from celery.utils.nodenames import default_nodename, host_format

__all__ = ["main"]


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
        hostname=host_format(default_nodename(options.hostname)),
        concurrency=options.concurrency,
        queues=options.queues,
        loglevel=level,
        quiet=True,
    )
    worker.start()
    sys.exit(worker.exitcode)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_celery", description=__doc__)
    parser.add_argument("app", help="module:attribute of the Celery app")
    programs = parser.add_subparsers(dest="program", required=True)
    worker, beat = programs.add_parser("worker"), programs.add_parser("beat")
    worker.add_argument("--concurrency", type=int, required=True, help="slots: tasks at once")
    worker.add_argument("--queues", required=True, help="names of queues, with commas between them")
    worker.add_argument("--hostname", help="the worker's name, in which %%h is the host")
    for program in (worker, beat):
        program.add_argument("--loglevel", default="warning")
    return parser


if __name__ == "__main__":
    main()
