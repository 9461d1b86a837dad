"""Turns of a process and its forks at something that they share. A process that ends in its turn holds up no other."""

import fcntl
import mmap
import os

_FREE, _TAKEN, _OVER = range(3)


class Turns:
    """One process at a time has its turn. Threads of a process see to their own order."""

    def __init__(self):
        # A lock of a process's, which the kernel takes from it when it ends.
        self._lock = os.memfd_create("millpond-turns")
        os.ftruncate(self._lock, 1)
        # Mapped, since the function may close all descriptors that it did not open, and open files in their places.
        self._state = mmap.mmap(self._lock, 1)

    def take(self):
        """Waits for a turn: `False` if there are no more, since they are closed, or somebody has ended in one."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        is_mine = self._state[0] == _FREE
        if is_mine:
            self._state[0] = _TAKEN
        else:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        return is_mine

    def give(self, is_done):
        """Ends this process's turn. If it is unknown what was done in it, it is the last one."""
        if is_done:
            self._state[0] = _FREE
        fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def close(self):
        """Ends all turns, in all processes: whether it is known of each what was done in it."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        was, self._state[0] = self._state[0], _OVER
        os.close(self._lock)
        return was != _TAKEN
