"""Serves peers of the script beside a test, peer.py: every connection to a socket is one, a process of its own that is
forked from this one. So what takes longer than most tests, to read the client's library, is done once.

The first line of a connection is the broker's URL and each further one a command; every line is answered with one. All
of that is JSON. It ends with its stdin, when the last peer has ended.
"""

import json
import os
import select
import shutil
import socket
import sys
import traceback

import peer


def serve(connection):
    lines, answers = connection.makefile("r", encoding="utf-8"), connection.makefile("w", encoding="utf-8")

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    client = peer.Peer(json.loads(lines.readline()))
    say({})
    for line in lines:
        command = json.loads(line)
        try:
            answer = getattr(client, command["op"])(command)
        except peer.ERRORS as e:
            answer = {"error": repr(e)}
        say(answer)


def reap(how):
    try:
        while os.waitpid(-1, how)[0]:
            pass
    except ChildProcessError:
        pass


def main(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    print(json.dumps({}), flush=True)
    while sys.stdin not in select.select([server, sys.stdin], [], [])[0]:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            status = 1
            try:
                serve(connection)
                status = 0
            except BaseException:
                traceback.print_exc()  # os._exit says nothing
            finally:
                sys.stderr.flush()
                os._exit(status)
        connection.close()
        reap(os.WNOHANG)
    reap(0)
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)  # where a test that timed out does not


if __name__ == "__main__":
    main(sys.argv[1])
