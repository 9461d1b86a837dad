"""Puts an object of 1 MiB as often as it is told, by a request that somebody else has signed: what the network alone costs.

    bare.py PORT HEAD BODY COUNT
"""

import socket
import sys

from measured import measured

port, head, body, count = sys.argv[1:]
with open(head, "rb") as file:
    head = file.read()
with open(body, "rb") as file:
    body = file.read()
connection = socket.create_connection(("127.0.0.1", int(port)))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def put():
    connection.sendall(head)
    connection.sendall(body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 200"), answer


measured(put, int(count))
