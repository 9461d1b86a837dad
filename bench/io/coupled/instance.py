"""The coupled baseline: a function with all that it talks by within its process, as Lambda's and Knative's are: the real boto3, and a gRPC server by which it is called.

It is started confined, with a socket as descriptor `CONTROL`, which says:

- `i`, with descriptors: be an instance. The first is the socket on which it says `p` and its port, once it can be called, and in the end `e` and an error;
- `z`: be a zygote, which forks with each `f`, that has a descriptor: the new process says `h` there when it is, and waits for its `i` on that.

An instance serves until its socket is closed, one request at a time.
"""

import time

RUNTIME = time.monotonic_ns()

import gc
import importlib
import json
import os
import sys
import threading
from concurrent import futures

import _socket
import native

native.gather()

import grpc

RPC = time.monotonic_ns()
CONTROL = 3


class Context:
    """What the ten functions might use of it."""

    function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME")
    memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")

    def __init__(self, aws_request_id):
        self.aws_request_id = aws_request_id


class Function(grpc.GenericRpcHandler):
    """`/lambda.Function/Invoke`, from JSON to JSON."""

    def __init__(self, handler):
        self.handler = handler
        self.method = grpc.unary_unary_rpc_method_handler(self.invoke)

    def service(self, details):
        return self.method if details.method == "/lambda.Function/Invoke" else None

    def invoke(self, request, context):
        result = self.handler(json.loads(request), Context(""))
        if "stamps" in result:
            result["stamps"] |= {"runtime": RUNTIME, "rpc": RPC}
        return json.dumps(result).encode()


def receive(socket):
    """The next packet, and the descriptors that came with it."""
    packet, messages, _, _ = socket.recvmsg(64, _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
    descriptors = []
    for level, kind, data in messages:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            descriptors += memoryview(data)[: len(data) // 4 * 4].cast("i")
    return packet, [_socket.socket(fileno=descriptor) for descriptor in descriptors]


def serve(handler, socket):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), handlers=[Function(handler)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    socket.send(b"p%d" % port)
    socket.recv(1)
    os._exit(0)


def main():
    control = _socket.socket(fileno=CONTROL)
    os.chdir(os.environ["LAMBDA_TASK_ROOT"])
    module, _, function = os.environ["_HANDLER"].rpartition(".")
    handler = getattr(importlib.import_module(module), function)
    packet, sockets = receive(control)
    if packet == b"i":
        serve(handler, sockets[0])
    elif packet != b"z":
        return
    if threading.active_count() > 1:
        raise RuntimeError("the import has started threads, and cannot be forked")
    gc.collect()
    gc.freeze()
    # In this process it forks for each `f`; what comes back is in a fork.
    _, descriptor = native.obey(CONTROL)
    if descriptor is None:
        return
    control.close()
    native.enclose(False)
    socket = _socket.socket(fileno=descriptor)
    socket.send(b"h")
    if receive(socket)[0] == b"i":
        serve(handler, socket)
    os._exit(0)


if __name__ == "__main__":
    main()
