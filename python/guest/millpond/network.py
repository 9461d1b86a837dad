"""What a function is told that would reach the network: the kernel's errors, which say nothing of why."""

import _socket

_WHY = "a function's process has no network; objects in S3, other services of AWS and other functions are reached by boto3"
_RESOLVERS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")


class _Socket(_socket.socket):
    """The class below `socket.socket`."""

    __slots__ = ()

    def __init__(self, *args, **kwargs):
        try:
            super().__init__(*args, **kwargs)
        except PermissionError as error:
            raise PermissionError(error.errno, f"{error.strerror}: {_WHY}") from None


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
