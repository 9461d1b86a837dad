"""What the bench asks of the host: control groups, what processes use, and an S3 server, with a proxy before it that can hold answers back."""

import os
import re
import select
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
from harness.servers import ROOT, Unavailable, free_port

VERSITYGW = ROOT / "build/tools/bin/versitygw"
KEYS = ("benchkey", "secret-of-the-bench-0123456789abcdef")
PAGE = os.sysconf("SC_PAGE_SIZE")


def mounts(kind, controller=None):
    """Where a hierarchy of control groups is."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, found, options, *_ = line.split()
        if found == kind and (controller is None or controller in options.split(",")):
            return Path(point)
    return None


class Group:
    """A control group of version 2, whose time is counted whether any controller is there or not. What is started in it stays in it."""

    def __init__(self, name):
        root = mounts("cgroup2")
        if root is None:
            raise Unavailable("there are no control groups of version 2, by which time is counted")
        own = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        self.name = f"{own[1].strip('/')}/millpond-bench-{os.getpid()}-{name}".strip("/")
        self.folder, self.count = root / self.name, 0
        try:
            self.folder.mkdir()
        except OSError as error:
            raise Unavailable(f"no control group can be made: {error}") from None

    def enter(self):
        """This process, and what it starts."""
        (self.folder / "cgroup.procs").write_text("0")

    def cpu(self):
        """Seconds on processors of all that were ever in it: in all, in user mode, in the kernel."""
        fields = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return np.array([int(fields[f"{name}_usec"]) / 1e6 for name in ("usage", "user", "system")])

    def settled(self, patience=2.0):
        """The same, once nothing more is done."""
        end, before = time.monotonic() + patience, self.cpu()
        while time.monotonic() < end:
            time.sleep(0.02)
            now = self.cpu()
            if now[0] - before[0] < 0.0005:
                return now
            before = now
        return before

    def limited(self, process, memory, processes):
        """The groups of one instance, with the limits that the engine `process` gives a guest."""
        self.count += 1
        return Limited(f"{self.folder.name}-{self.count}", process, memory, processes)

    def remove(self):
        for _ in range(200):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.01)


class Limited:
    """Control groups of version 1, where a host has them: memory, processes and cores are counted there."""

    def __init__(self, name, process, memory, processes):
        self.folders = []
        limits = {
            "memory": {"memory.limit_in_bytes": memory + PAGE},
            "pids": {"pids.max": processes},
            "cpu": {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": 100_000},
        }
        for controller, files in limits.items():
            root = mounts("cgroup", controller)
            if root is None:
                continue
            own = re.search(rf"^\d+:[^:]*\b{controller}\b[^:]*:(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
            folder = root / own[1].strip("/") / name
            folder.mkdir(exist_ok=True)
            for file, value in files.items():
                (folder / file).write_text(str(value))
            (folder / "cgroup.procs").write_text(str(process))
            self.folders.append(folder)

    def remove(self):
        for folder in self.folders:
            for _ in range(200):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.01)


# --- processes --------------------------------------------------------------------------------------------------


def children(process):
    """Of all its threads."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(process):
    below = children(process)
    return below + [further for child in below for further in descendants(child)]


def named(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def depth(process):
    """In how many process namespaces it is: an interpreter's guests are in one more than it is."""
    try:
        [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("NSpid:")]
    except (OSError, ValueError):
        return 0
    return len(line.split()) - 1


def cpu_of(process):
    """Seconds of its living threads on processors."""
    total = 0
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    except OSError:
        pass
    return total / 1e9


def pss(process):
    """Bytes of memory, where what is shared counts by the number of who shares it."""
    try:
        return int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)[1]) * 1024
    except (OSError, TypeError):
        return 0


def maps(process):
    """Its mappings: begin, end, whether of a file."""
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        span, _, _, device, inode, *path = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in span.split("-"))
        if path and path[0].startswith("[v"):
            continue
        yield begin, end, inode != "0"


def present(process, begin, end):
    """Which pages of a mapping it has."""
    with open(f"/proc/{process}/pagemap", "rb", buffering=0) as file:
        file.seek(begin // PAGE * 8)
        return np.frombuffer(file.read((end - begin) // PAGE * 8), np.uint64) >> np.uint64(63) == 1


def whole(process, origin=None):
    """Bytes of memory as if it shared nothing with anybody: each page that it has, and of files also those that the process has
    that it was forked from, since it would have read them itself."""
    total = 0
    for begin, end, of_file in maps(process):
        try:
            pages = present(process, begin, end)
            if of_file and origin:
                other = present(origin, begin, end)
                if len(other) == len(pages):
                    pages = pages | other
        except (OSError, OverflowError):
            continue
        total += int(pages.sum()) * PAGE
    return total


# --- objects ----------------------------------------------------------------------------------------------------


def folder_for_objects(scratch):
    """In memory, where file attributes can be kept there: a disk would be most of the noise."""
    memory = Path("/dev/shm") / f"millpond-bench-{os.getpid()}"
    try:
        memory.mkdir()
        os.setxattr(memory, "user.bench", b"1")
        return memory
    except OSError:
        if memory.exists():
            memory.rmdir()
        return scratch / "objects"


class S3:
    """versitygw on a folder."""

    def __init__(self, folder, core, logs):
        if not VERSITYGW.exists():
            raise Unavailable("there is no S3 server: versitygw is built by `make setup-bench` where Go 1.25 or later is")
        self.folder, self.core, self.logs = folder / "objects", core, logs
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.start(self.port)

    def start(self, port):
        """Listens there. Its objects stay, wherever it does."""
        core = self.core
        command = [VERSITYGW, "--port", f"127.0.0.1:{port}", "--access", KEYS[0], "--secret", KEYS[1], "--keep-alive", "--quiet"]
        command += ["posix", self.folder]
        with open(self.logs / "versitygw.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        self.stop()
        raise Unavailable("the S3 server does not listen")

    def client(self):
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1], region_name="us-east-1")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Holding:
    """A proxy in the S3 server's place, and that behind it, which holds back what it answers to the first write of a connection, for as long as it is told to: so many requests
    are then at the same place, with all that they need in their memory."""

    def __init__(self, s3):
        self.s3, self.upstream = s3, free_port()
        s3.stop()
        s3.start(self.upstream)
        self.listener = socket.create_server(("127.0.0.1", s3.port), backlog=1024)
        self.lock, self.open = threading.Lock(), threading.Event()
        self.open.set()
        self.held = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def hold(self):
        with self.lock:
            self.held = 0
        self.open.clear()

    def release(self):
        self.open.set()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[client], daemon=True).start()

    def serve(self, client):
        server = socket.create_connection(("127.0.0.1", self.upstream))
        writing = False
        # Not `select`, which knows no descriptor beyond 1023.
        poll = select.poll()
        for one in (client, server):
            poll.register(one, select.POLLIN)
        try:
            while True:
                for number, _ in poll.poll():
                    ready = client if number == client.fileno() else server
                    data = ready.recv(1 << 18)
                    if not data:
                        return
                    if ready is client:
                        # A head comes in a packet of its own, or at the beginning of one.
                        writing = data.startswith(b"PUT ") if re.match(rb"[A-Z]+ /", data) else writing
                        server.sendall(data)
                        continue
                    if writing and not data.startswith(b"HTTP/1.1 100"):
                        if not self.open.is_set():
                            with self.lock:
                                self.held += 1
                            self.open.wait()
                        writing = False
                    client.sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def stop(self):
        """The server is where it was."""
        self.release()
        # What waits for a connection is woken.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.s3.stop()
        self.s3.start(self.s3.port)
