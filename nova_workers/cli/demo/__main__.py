"""`make demo`: the entry point of the demo."""

from nova_workers.base.program import run_program

if __name__ == "__main__":
    run_program("nova_workers.cli.demo.show", "structlog", "redis")
