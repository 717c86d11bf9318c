"""A help desk on loopback."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Desk:
    """Takes records under keys. `broken` lets it answer 503."""

    def __init__(self):
        self.records = {}
        self.secrets = {}
        self._is_broken = False
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                known = self.headers["authorization"] == "Bearer token-41c9d2"
                if known and not desk._is_broken:
                    desk.records[self.path] = json.loads(body)
                self.send_response(503 if desk._is_broken else 204 if known else 401)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.secrets = {
            "DESK_URL": f"http://127.0.0.1:{self._server.server_port}",
            "DESK_TOKEN": "token-41c9d2",
        }
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def broken(self):
        self._is_broken = True
        yield
        self._is_broken = False

    def outcome(self, run):
        found = [record for record in self.records.values() if record["run"] == run.run_id]
        return [(record["agent"], record["status"], record["text"]) for record in found] or None
