"""``python -m nova_workers.devstack.run_module MODULE [ARGUMENT…]``: ``python -m MODULE`` without Ctrl-C tracebacks.

uvicorn and Celery install their signal handlers when they serve, seconds after their first import.
"""

import importlib
import runpy
import sys

from nova_workers.base.program import collect_seldom, import_sparingly, importing, leave_on_interrupt


def main() -> None:
    """Run the module that the first argument names, with the arguments that follow."""
    leave_on_interrupt()
    collect_seldom()
    del sys.argv[0]
    # The program, and the application that a server's first argument names.
    names = [name.partition(":") for name in sys.argv[:2]]
    with importing():
        import_sparingly(*(module for module, _, _ in names))
        for module, separator, _ in names:
            if separator:
                importlib.import_module(module)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
