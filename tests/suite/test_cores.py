"""Cores wait for their sockets and for nothing else: not for a disk, not for a compiler, not for a lock that somebody holds."""

import platform
import threading
from collections import Counter
from pathlib import Path

import pytest
from harness import Swarm, get, guest

# What may be slow, by its number on x86-64: files, disks, processes, other threads.
SLOW = {
    2: "open", 4: "stat", 5: "fstat", 8: "lseek", 17: "pread64", 18: "pwrite64", 35: "nanosleep", 40: "sendfile", 56: "clone", 57: "fork",
    59: "execve", 61: "wait4", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 87: "unlink",
    162: "sync", 217: "getdents64", 230: "clock_nanosleep", 247: "waitid", 257: "openat", 262: "newfstatat", 263: "unlinkat",
    277: "sync_file_range", 285: "fallocate", 295: "preadv", 296: "pwritev", 435: "clone3",
}
FUTEX = "202"
WAITING = ("232", "281", "441")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are those of x86-64")
def test_cores_wait_for_their_sockets_alone(two_cores):
    """Whatever else the node does: each core is looked at some ten thousand times."""
    threads = Path(f"/proc/{two_cores.process.pid}/task").iterdir()
    cores = [thread for thread in threads if (thread / "comm").read_text().startswith("core-")]
    assert len(cores) == 2
    try:
        (cores[0] / "syscall").read_text()
    except PermissionError as error:
        pytest.skip(f"what a thread waits for cannot be read here: {error}")
    app = two_cores.deploy("cores", {"ping": "ping", "stderr": "stderr"})
    over = threading.Event()
    errors = []

    def work():
        """What makes a node compile, read, write and flush."""
        try:
            with two_cores.wire() as wire:
                for n in range(12):
                    two_cores.deploy("cores-busy", {"f": (guest("hello-rust", n), {})})
                    for _ in range(20):
                        wire.send(get("/async-function/cores-busy.f", method="POST", headers="Content-Length: 0\r\n"))
                        assert wire.read().status == 202
                        wire.send(get(app.path("stderr")))
                        assert wire.read().status == 200
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    seen, worker = Counter(), threading.Thread(target=work, daemon=True)
    with Swarm(two_cores, app.path("ping"), clients=2) as swarm:
        worker.start()
        while not over.is_set() or seen.total() < 20_000:
            for core in cores:
                seen[(core / "syscall").read_text().split()[0]] += 1
        worker.join()
    assert not errors and not swarm.errors, (errors, swarm.errors)
    assert sum(seen[number] for number in WAITING) > 0, seen
    slow = {name: seen[str(number)] for number, name in SLOW.items() if seen[str(number)]}
    assert not slow, f"a core was in {slow} out of {seen.total()} times"
    # A lock that another thread holds for an instant may be met, once in a while.
    assert seen[FUTEX] < seen.total() / 100, seen
