"""A shop in Python: orders one by one, clicks in batches, and reminders that are published with a delay.

Its messages come from redeliver run, see subscriptions.yaml. It needs only the standard library.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

TOPICS = (sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8082") + "/v1/topics/"


def publish(topic, message, id, delay):
    headers = {"Content-Type": "application/json", "Redeliver-Id": id, "Redeliver-Delay": delay}
    urlopen(Request(TOPICS + topic, json.dumps(message).encode(), headers)).read()  # raises unless the broker has it


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        {"/orders": self.order, "/clicks": self.clicks}[self.path](body)

    def order(self, body):
        try:
            order = json.loads(body)
            number = order["number"]
        except (ValueError, TypeError, KeyError) as e:
            return self.answer(400, f"no order: {e}")  # to the dead-letter queue
        if "card" not in order and "INVOICE" not in os.environ:
            return self.answer(422, "no card")  # so is this
        publish("reminders", {"number": number}, f"reminder-{number}", "1s")  # again with the same id if this is a retry
        print(f"order {number}, attempt {self.headers['Redeliver-Attempt']}", flush=True)
        self.answer(204)  # an exception before this breaks the connection: the order is retried

    def clicks(self, body):
        answers = []
        for i, message in enumerate(json.loads(body)["messages"]):
            if not message.get("body_text", "").startswith("/"):
                answers.append({"index": i, "answer": "reject", "reason": "no page"})
            else:
                print(f"click {message['body_text']}", flush=True)
        self.answer(200, json.dumps({"answers": answers}))  # the others are done

    def answer(self, status, text=""):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Shop).serve_forever()
