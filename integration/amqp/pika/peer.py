"""An independent AMQP client for tests: it publishes and reads what it is told to, each command a method of Peer, see
integration/fidelity/peers.py. A header's value is {"k": kind, "v": hex}, with "t" for the table of kind F and "a" for the
array of kind A, so that every kind of value can be written and told apart; {"py": expression} is a value as pika's users
give it.
"""

import base64
import datetime
import decimal
import json
import struct
import sys

try:
    import pika
    from pika import data
except ImportError:
    print(json.dumps({"error": "pika is not installed for " + sys.executable}), flush=True)
    sys.exit(1)

ERRORS = (pika.exceptions.AMQPError,)
FIXED = {b"t": 1, b"b": 1, b"B": 1, b"U": 2, b"u": 2, b"s": 2, b"I": 4, b"i": 4, b"l": 8, b"L": 8, b"f": 4, b"d": 8,
         b"D": 5, b"T": 8, b"V": 0}
PROPERTIES = ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
              "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")


class Typed:
    def __init__(self, kind, value):
        self.kind, self.value = kind, value


encode, decode = data.encode_value, data.decode_value


def encode_value(pieces, value):
    if not isinstance(value, Typed):
        return encode(pieces, value)
    inner = []
    if value.kind == b"F":
        data.encode_table(inner, value.value)
    elif value.kind == b"A":
        for item in value.value:
            encode_value(inner, item)
        inner.insert(0, struct.pack(">I", sum(map(len, inner))))
    elif value.kind in b"Sx":
        inner = [struct.pack(">I", len(value.value)), value.value]
    else:
        inner = [value.value]
    piece = value.kind + b"".join(inner)
    pieces.append(piece)
    return len(piece)


def decode_value(encoded, offset):
    kind = encoded[offset:offset + 1]
    if kind in FIXED:
        end = offset + 1 + FIXED[kind]
        return Typed(kind, encoded[offset + 1:end]), end
    value, end = decode(encoded, offset)
    if kind in b"Sx":
        value = encoded[offset + 5:end]
    return Typed(kind, value), end


def to_typed(j):
    if "py" in j:
        return eval(j["py"], {"datetime": datetime, "decimal": decimal})
    kind = j["k"].encode()
    if kind == b"F":
        return Typed(kind, {name: to_typed(v) for name, v in (j.get("t") or {}).items()})
    if kind == b"A":
        return Typed(kind, [to_typed(v) for v in j.get("a") or []])
    return Typed(kind, bytes.fromhex(j.get("v", "")))


def to_json(v):
    j = {"k": v.kind.decode()}
    if v.kind == b"F":
        j["t"] = {name: to_json(item) for name, item in v.value.items()}
    elif v.kind == b"A":
        j["a"] = [to_json(item) for item in v.value]
    else:
        j["v"] = v.value.hex()
    return {k: item for k, item in j.items() if item}


class Peer:
    def __init__(self, url):
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = None
        # From here on: pika reads what the server says of itself with its own.
        data.encode_value, data.decode_value = encode_value, decode_value

    def open(self):
        if self.channel is None or self.channel.is_closed:
            self.channel = self.connection.channel()
            self.channel.confirm_delivery()
        return self.channel

    def properties(self, c):
        p = dict(c.get("props") or {})
        if c.get("headers") is not None:
            p["headers"] = {name: to_typed(v) for name, v in c["headers"].items()}
        return pika.BasicProperties(**p)

    def publish(self, c):
        self.open().basic_publish(c["exchange"], c["key"], base64.b64decode(c.get("body") or ""), self.properties(c),
                                  mandatory=True)
        return {}

    def take(self, c):
        """Takes n messages off a queue, or what came until none did for a while."""
        channel, found = self.open(), []
        for method, properties, body in channel.consume(c["queue"], inactivity_timeout=c["wait"]):
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            found.append({
                "exchange": method.exchange, "key": method.routing_key, "body": base64.b64encode(body).decode(),
                "props": {name: getattr(properties, name) for name in PROPERTIES if getattr(properties, name) is not None},
                "headers": {name: to_json(v) for name, v in (properties.headers or {}).items()},
            })
            if len(found) == c["n"]:
                break
        channel.cancel()
        return {"messages": found}

    def call(self, c):
        """Publishes with the direct reply-to, and waits for the reply."""
        channel, replies = self.connection.channel(), []
        channel.basic_consume("amq.rabbitmq.reply-to", lambda ch, method, p, body: replies.append(body), auto_ack=True)
        channel.basic_publish(c["exchange"], c["key"], base64.b64decode(c.get("body") or ""), self.properties(c))
        while not replies:
            self.connection.process_data_events(time_limit=None)
        return {"messages": [{"body": base64.b64encode(replies[0]).decode()}]}
