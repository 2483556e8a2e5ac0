"""A service in Python whose orders come from a topic or queue, through redeliver run.

It needs nothing but Python: no client of a broker, no loop, no retries. An order is
POSTed to it, and it answers with a status. The card of some orders is unknown, and the
bank is busy now and then, as banks are.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        attempt = int(self.headers["Redeliver-Attempt"])
        try:
            order = json.loads(body)
            number = int(order["number"])
        except (ValueError, TypeError, KeyError) as e:
            return self.answer(400, f"no order: {e}")  # to the dead-letter queue, now
        if order.get("card") is None:
            return self.answer(422, "no such card")  # so is this
        if number % 5 == 0 and attempt == 1:
            return self.answer(429, "the bank is busy", {"Retry-After": "2"})  # again in 2 s
        if number % 3 == 0 and attempt < 3:
            return self.answer(500, "the bank does not answer")  # again when the policy says
        print(f"order {number} is charged, attempt {attempt}\n", end="", flush=True)  # in one piece
        return self.answer(204)

    def answer(self, status, why="", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(why.encode())))
        self.end_headers()
        self.wfile.write(why.encode())

    def log_message(self, *_):
        pass  # what fails is in the log of redeliver run


class Server(ThreadingHTTPServer):
    daemon_threads = True  # Ctrl-C does not wait for connections
    request_queue_size = 128  # Python's 5 is fewer than are made at once


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with Server(("127.0.0.1", port), Orders) as server:
        print(f"orders are charged at http://localhost:{server.server_port}/orders", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
