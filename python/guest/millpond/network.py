"""What a function is told that would reach the network: the kernel's errors, which say nothing of why."""

import _socket
import errno
import os

_WHY = "a function's process has no network; objects in S3, other services of AWS and other functions are reached by boto3"
_RESOLVERS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")


class _Socket(_socket.socket):
    """The class below `socket.socket`.

    A socket for datagrams is there, as on a host without network, and sends none: libraries make theirs while they are imported, as the SDK
    of X-Ray does, and send what may get lost.
    """

    __slots__ = ("_is_nowhere",)

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        self._is_nowhere = False
        try:
            super().__init__(family, type, proto, fileno)
        except PermissionError as error:
            # Above the kind are two flags.
            if family not in (_socket.AF_INET, _socket.AF_INET6) or type & 0xF != _socket.SOCK_DGRAM:
                raise PermissionError(error.errno, f"{error.strerror}: {_WHY}") from None
            one, _ = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)
            super().__init__(family, type, proto, one.detach())
            self._is_nowhere = True

    def connect_ex(self, address):
        return errno.ENETUNREACH if self._is_nowhere else super().connect_ex(address)


def _nowhere(name):
    original = getattr(_socket.socket, name)

    def sent(self, *args, **kwargs):
        if self._is_nowhere:
            raise OSError(errno.ENETUNREACH, f"{os.strerror(errno.ENETUNREACH)}: {_WHY}")
        return original(self, *args, **kwargs)

    return sent


for _name in ("bind", "connect", "sendmsg", "sendto"):
    setattr(_Socket, _name, _nowhere(_name))


def _telling(resolve):
    def resolved(*args, **kwargs):
        try:
            return resolve(*args, **kwargs)
        except _socket.gaierror as error:
            raise _socket.gaierror(error.errno, f"{error.strerror}: {_WHY}") from None

    return resolved


def tell():
    """Has the errors of sockets and of names say why from now on."""
    _socket.socket = _Socket
    for name in _RESOLVERS:
        setattr(_socket, name, _telling(getattr(_socket, name)))
