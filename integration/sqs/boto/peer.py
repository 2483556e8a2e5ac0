"""An independent SQS client for tests. Each command is a method of Peer, see integration/fidelity/peers.py. An attribute
of a message is {"t": its type, "v": its value}. The value of a binary attribute is in hex digits.
"""

import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

ERRORS = (BotoCoreError, ClientError)


def connect(url):
    # Any credentials work. A refusal is a result for the test, so nothing is retried.
    return boto3.client("sqs", endpoint_url=url, region_name="eu-central-1", aws_access_key_id="x",
                        aws_secret_access_key="x", config=Config(retries={"max_attempts": 0}))


connect("http://localhost")  # sends no request, but loads boto3's data files once


def to_sdk(attributes):
    sdk = {}
    for name, a in (attributes or {}).items():
        if a["t"].split(".")[0] == "Binary":
            sdk[name] = {"DataType": a["t"], "BinaryValue": bytes.fromhex(a["v"])}
        else:
            sdk[name] = {"DataType": a["t"], "StringValue": a["v"]}
    return sdk


def to_json(sdk):
    attributes = {}
    for name, a in (sdk or {}).items():
        value = a["BinaryValue"].hex() if "BinaryValue" in a else a["StringValue"]
        attributes[name] = {"t": a["DataType"], "v": value}
    return attributes


class Peer:
    def __init__(self, url):
        self.sqs = connect(url)

    def create(self, c):
        return {"url": self.sqs.create_queue(QueueName=c["queue"], Attributes=c.get("attributes") or {})["QueueUrl"]}

    def url(self, queue):
        return self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]

    def arguments(self, m):
        sdk = {"MessageBody": m["body"], "MessageAttributes": to_sdk(m.get("attributes"))}
        for ours, theirs in (("group", "MessageGroupId"), ("dedup", "MessageDeduplicationId"), ("delay", "DelaySeconds")):
            if m.get(ours):
                sdk[theirs] = m[ours]
        if m.get("trace"):
            sdk["MessageSystemAttributes"] = {"AWSTraceHeader": {"DataType": "String", "StringValue": m["trace"]}}
        return sdk

    def send(self, c):
        return {"id": self.sqs.send_message(QueueUrl=self.url(c["queue"]), **self.arguments(c["message"]))["MessageId"]}

    def take(self, c):
        """Receives and deletes n messages, or fewer if none comes for c["wait"] seconds."""
        url, found, last = self.url(c["queue"]), [], time.monotonic()
        while len(found) < c["n"] and time.monotonic() - last < c["wait"]:
            got = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=min(10, c["n"] - len(found)), WaitTimeSeconds=1,
                                           VisibilityTimeout=60, AttributeNames=["All"], MessageAttributeNames=["All"])
            for m in got.get("Messages", []):
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=m["ReceiptHandle"])
                system, last = m["Attributes"], time.monotonic()
                found.append({
                    "id": m["MessageId"], "body": m["Body"], "attributes": to_json(m.get("MessageAttributes")),
                    "group": system.get("MessageGroupId", ""), "dedup": system.get("MessageDeduplicationId", ""),
                    "trace": system.get("AWSTraceHeader", ""), "received": int(system["ApproximateReceiveCount"]),
                })
        return {"messages": found}

    def attributes(self, c):
        sdk = self.sqs.get_queue_attributes(QueueUrl=self.url(c["queue"]), AttributeNames=["All"])
        return {"attributes": sdk["Attributes"]}
