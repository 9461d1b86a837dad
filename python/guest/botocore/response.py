"""`StreamingBody`: an object's bytes as they come."""

from io import BytesIO, IOBase

from botocore import rest_of


class Raw(IOBase):
    """What a `StreamingBody` reads from: the body of a backend's reply. Its failures go by botocore's names. If the backend is lost on the way, the rest
    is that of the reply that `again` has for a position, if it has one."""

    def __init__(self, reply, failed, again=None):
        self._reply, self._failed, self._again = reply, failed, again
        self._position, self._length = 0, reply.length

    def readable(self):
        return True

    def read(self, amt=None):
        if self._reply is None:
            return b""
        before, left = b"", -1 if amt is None else amt
        while True:
            try:
                data = self._reply.read(left)
                self._position += len(data)
                return before + data if before else data
            except self._failed as failure:
                before += failure.data
                self._position += len(failure.data)
                left = left if left < 0 else left - len(failure.data)
                self._go_on(failure)

    def readinto(self, buffer):
        if self._reply is None:
            return 0
        while True:
            try:
                count = self._reply.readinto(buffer)
                self._position += count
                return count
            except self._failed as failure:
                self._go_on(failure)

    def _go_on(self, failure):
        reply = self._again(self._position) if self._again and failure.kind == "lost" else None
        if reply is None:
            raise self._broken(failure) from failure
        self._reply = reply

    def _broken(self, failure):
        from botocore import exceptions

        if failure.kind == "timeout":
            return exceptions.ReadTimeoutError(endpoint_url=None, error=failure)
        if failure.kind == "damaged":
            return exceptions.FlexibleChecksumError(error_msg=failure.message)
        return exceptions.BrokenStream(error=failure, actual_bytes=self._position, expected_bytes=self._length)

    def readlines(self, hint=-1):
        return BytesIO(self.read()).readlines(hint)

    def tell(self):
        return self._position

    def close(self):
        if self._reply is not None:
            self._reply.close()
            self._reply = None
        super().close()


class StreamingBody(IOBase):
    """A body of known length, of any file-like object: it says when less came."""

    _DEFAULT_CHUNK_SIZE = 1024

    def __init__(self, raw_stream, content_length):
        self._raw_stream = raw_stream
        self._content_length = content_length
        self._amount_read = 0

    def __del__(self):
        # `IOBase` would close what others may still read.
        pass

    def set_socket_timeout(self, timeout):
        """Nothing: there is no socket here."""

    def readable(self):
        try:
            return self._raw_stream.readable()
        except AttributeError:
            return False

    def read(self, amt=None):
        """At most `amt` bytes; all that is left without it."""
        chunk = self._raw_stream.read(amt)
        self._amount_read += len(chunk)
        if amt is None or (not chunk and amt > 0):
            self._verify_content_length()
        return chunk

    def readinto(self, b):
        count = self._raw_stream.readinto(b)
        self._amount_read += count
        if count == 0 and len(b) > 0:
            self._verify_content_length()
        return count

    def _verify_content_length(self):
        if self._content_length is not None and self._amount_read != int(self._content_length):
            from botocore.exceptions import IncompleteReadError

            raise IncompleteReadError(actual_bytes=self._amount_read, expected_bytes=int(self._content_length))

    def readlines(self):
        return self._raw_stream.readlines()

    def __iter__(self):
        return self.iter_chunks(self._DEFAULT_CHUNK_SIZE)

    def __next__(self):
        chunk = self.read(self._DEFAULT_CHUNK_SIZE)
        if chunk:
            return chunk
        raise StopIteration()

    next = __next__

    def __enter__(self):
        return self._raw_stream

    def __exit__(self, *_):
        self._raw_stream.close()

    def iter_lines(self, chunk_size=_DEFAULT_CHUNK_SIZE, keepends=False):
        """Lines, of which no more than one is kept at a time."""
        pending = b""
        for chunk in self.iter_chunks(chunk_size):
            lines = (pending + chunk).splitlines(True)
            pending = lines.pop()
            for line in lines:
                yield line.splitlines(keepends)[0]
        if pending:
            yield pending.splitlines(keepends)[0]

    def iter_chunks(self, chunk_size=_DEFAULT_CHUNK_SIZE):
        """Pieces of `chunk_size` bytes, and the rest."""
        while (chunk := self.read(chunk_size)) != b"":
            yield chunk

    def tell(self):
        return self._raw_stream.tell()

    def close(self):
        """Gives up what has not come yet."""
        self._raw_stream.close()


__getattr__ = rest_of(__name__)
