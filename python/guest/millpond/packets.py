"""Packets on sockets, with descriptors."""

import _socket


def receive(socket, size, ancillary):
    """The next packet of `socket`, empty if nobody is there any more, and the descriptors that came with it."""
    packet, messages, _, _ = socket.recvmsg(size, ancillary, _socket.MSG_CMSG_CLOEXEC)
    descriptors = []
    for level, kind, data in messages:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            descriptors += memoryview(data)[: len(data) // 4 * 4].cast("i")
    return packet, descriptors
