"""The coupled baseline: the same sandbox with a network, and in each instance the real boto3 and a gRPC server.

`build` makes what starts an instance: the product's own confinement (`crates/confine`) with the changes below, which let a network in, and
`coupled/main.rs`. The product has no such switch, and needs none for this.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import tomllib
from pathlib import Path

from harness.servers import ROOT, Unavailable

HERE = ROOT / "bench/io/coupled"
BUILT = ROOT / "build/bench/io"
SDK = BUILT / "sdk"
PROGRAM = BUILT / "coupled/target/release/coupled"

# What is taken out or put in, by file: each is found once, or the baseline is not what it should be.
NETWORK = {
    "namespace.rs": [("        (Wall::Network, libc::CLONE_NEWNET),\n", "")],
    "fence.rs": [(".handle_access(AccessNet::from_all(KNOWN))?", ""), ("AccessNet, ", "")],
    "filter.rs": [
        (
            "    rules.insert(libc::SYS_socketpair, Rule::If(vec![local]));\n",
            "    rules.insert(libc::SYS_socketpair, Rule::If(vec![local]));\n"
            "    let network = [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,\n"
            "        libc::SYS_sendmmsg, libc::SYS_recvmmsg];\n"
            "    rules.extend(network.iter().map(|call| (*call, Rule::Always(Answer::Allow))));\n",
        )
    ],
}

# What the engine `process` gives a function of the host, beside its Python (`engines/process/src/python.rs`).
LIBRARIES = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64"]
FACTS = ["/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu", "/usr/share/zoneinfo"]
QUESTION = """
import sys, sysconfig
print(sys.executable)
print(sysconfig.get_path('stdlib'))
print(sysconfig.get_path('platstdlib'))
print(sysconfig.get_config_var('LIBDIR') if sysconfig.get_config_var('Py_ENABLE_SHARED') else '')
"""
PROCESSES = 256

# Descriptor 3 is what a program finds its socket in, and none that `subprocess` needs before may have it.
try:
    os.fstat(3)
except OSError:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 3)


def sources():
    """What `PROGRAM` is built from: texts by their names."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    source = ROOT / "crates/confine"
    needed = tomllib.loads((source / "Cargo.toml").read_text())["dependencies"]
    lines = []
    for name in needed:
        what = workspace["dependencies"][name]
        what = {"version": what} if isinstance(what, str) else what
        pairs = ", ".join(f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in what.items())
        lines.append(f"{name} = {{ {pairs} }}")
    dependencies = "\n".join(lines)
    edition = workspace["package"]["edition"]
    files = {
        "confine/Cargo.toml": f'[package]\nname = "confine"\nedition = "{edition}"\n\n[dependencies]\n{dependencies}\n',
        "Cargo.toml": f'[package]\nname = "coupled"\nedition = "{edition}"\n\n[[bin]]\nname = "coupled"\npath = {json.dumps(str(HERE / "main.rs"))}\n'
        f'\n[dependencies]\nconfine = {{ path = "confine" }}\n{dependencies}\n\n[workspace]\n',
    }
    for file in (source / "src").glob("*.rs"):
        text = file.read_text()
        for found, put in NETWORK.get(file.name, ()):
            if text.count(found) != 1:
                raise Unavailable(f"crates/confine/src/{file.name} has changed: `{found.strip()}` of bench/io/baseline.py is not in it once")
            text = text.replace(found, put)
        files[f"confine/src/{file.name}"] = text
    return files


def build():
    """Builds `PROGRAM`, with the versions of the workspace's own lock file."""
    folder = BUILT / "coupled"
    for name, text in sources().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    if not (folder / "Cargo.lock").exists():
        shutil.copy(ROOT / "Cargo.lock", folder)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
    subprocess.run(["cargo", "build", "--quiet", "--release", "--manifest-path", folder / "Cargo.toml"], check=True, env=environment)


def python_of(node_python="python3"):
    """The interpreter that a node finds, and its folders."""
    said = subprocess.run([node_python, "-I", "-S", "-c", QUESTION], capture_output=True, text=True, check=True, env=without_venv())
    program, *folders = (line for line in said.stdout.splitlines() if line)
    return str(Path(program).resolve()), sorted(set(folders))


def without_venv():
    """This process's environment, without the virtual one that it runs in: a node is to find the host's Python."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    venv = str(BUILT / "venv/bin")
    environment["PATH"] = os.pathsep.join(folder for folder in environment["PATH"].split(os.pathsep) if folder != venv)
    return environment


class Launched:
    """A confined interpreter that has imported a function, the real boto3 and grpc: an instance to come, or a zygote of instances.

    `package` is the function's, as the node has unpacked it; `native` the extension module by which the runtime forks; `group` a control group.
    """

    def __init__(self, name, package, native, endpoint, credentials, group, core, logs, memory=512 << 20, handler="app.handler"):
        self.name, self.memory, self.group = name, memory, group
        code = BUILT / "coupled/code"
        code.mkdir(parents=True, exist_ok=True)
        for file in (HERE / "instance.py", native):
            if not (code / file.name).exists() or (code / file.name).read_bytes() != file.read_bytes():
                shutil.copy(file, code)
        program, folders = python_of()
        command = [PROGRAM]
        for path in [program, *folders, *LIBRARIES]:
            command += ["--execute", path]
        for path in FACTS:
            command += ["--read", path]
        # gRPC asks this device for a seed, and no device is let in: a file stands for it.
        seed = BUILT / "coupled/seed"
        if not seed.exists():
            seed.write_bytes(os.urandom(1 << 16))
        for path, at in ((package, "/var/task"), (code, "/opt/coupled"), (SDK, "/opt/sdk"), (seed, "/dev/urandom")):
            command += ["--placed", f"{path}={at}"]
        begin = "import sys; sys.path[:0] = ['/opt/coupled', '/var/task', '/opt/sdk']; from instance import main; main()"
        command += ["--memory", str(memory), "--threads", str(PROCESSES * 80), "--", program, "-I", "-S", "-B", "-c", begin]
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": ":UTC", "HOME": "/tmp",
            "LAMBDA_TASK_ROOT": "/var/task", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "_HANDLER": handler,
            "AWS_LAMBDA_FUNCTION_NAME": name, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory >> 20),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": credentials[0], "AWS_SECRET_ACCESS_KEY": credentials[1],
        }
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log = logs / f"coupled-{name}.log"
        descriptor = theirs.fileno()

        def prepare():
            group.enter()
            os.sched_setaffinity(0, {core})
            os.dup2(descriptor, 3)

        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment,
                preexec_fn=prepare, close_fds=False, cwd="/",
            )
        theirs.close()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise Unavailable(f"the baseline does not start: {self.last_words()}")
        self.interpreter = int(line)
        self.instances, self.is_zygote = [], False

    def last_words(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {self.log}"

    def alone(self):
        """The interpreter itself becomes the one instance."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.control, [b"i"], [theirs.fileno()])
        theirs.close()
        return self.keep(Instance(self, ours, self.interpreter))

    def fork(self):
        """A process for an instance, which waits for its order, as a fork ahead of need does."""
        if not self.is_zygote:
            self.is_zygote = True
            self.control.send(b"z")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        socket.send_fds(self.control, [b"f"], [theirs.fileno()])
        theirs.close()
        packet, messages, _, _ = ours.recvmsg(64, 256)
        if packet != b"h":
            raise Unavailable(f"the baseline cannot fork an instance: {self.last_words()}")
        [credentials] = [data for level, kind, data in messages if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)]
        [process, _, _] = struct.unpack("iII", credentials)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        self.process.stdin.write(b"%d\n" % process)
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise Unavailable(f"the baseline's instance gets no folder: {self.last_words()}")
        return self.keep(Instance(self, ours, process))

    def keep(self, instance):
        instance.limits = self.group.limited(instance.process, self.memory, PROCESSES)
        self.instances.append(instance)
        return instance

    def stop(self):
        for instance in self.instances:
            instance.stop()
        self.control.close()
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        for instance in self.instances:
            instance.limits.remove()


class Instance:
    """One instance, which serves one request at a time."""

    def __init__(self, launched, control, process):
        self.launched, self.control, self.process = launched, control, process
        self.connection = None

    def begin(self):
        """Has a forked process make its server."""
        self.control.send(b"i")
        return self

    def connect(self):
        """Waits for the server, and connects to it."""
        said = self.control.recv(64)
        if said[:1] != b"p":
            raise Unavailable(f"an instance of the baseline does not begin: {self.launched.last_words()}")
        self.connection = Grpc(int(said[1:]))
        return self

    def call(self, body):
        return self.connection.call(body)

    def stop(self):
        if self.connection:
            self.connection.close()
        self.control.close()


class Grpc:
    """A client of gRPC for one method on one connection, one call at a time: as lean as the client of HTTP/1.1 that it stands beside."""

    HEAD = (
        b"\x83\x86"  # POST, http
        b"\x04\x17/lambda.Function/Invoke"
        b"\x01\x09localhost"
        b"\x0f\x10\x10application/grpc"
        b"\x00\x02te\x08trailers"
    )

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Windows of a gibibyte: SETTINGS with INITIAL_WINDOW_SIZE, and WINDOW_UPDATE of the connection.
        settings = frame(4, 0, 0, struct.pack(">HI", 4, 1 << 30)) + frame(8, 0, 0, struct.pack(">I", (1 << 30) - 65536))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
        self.buffer, self.stream = bytearray(), 1

    def call(self, body):
        message = b"\0" + struct.pack(">I", len(body)) + body
        # HEADERS with END_HEADERS, then DATA with END_STREAM.
        self.socket.sendall(frame(1, 4, self.stream, self.HEAD) + frame(0, 1, self.stream, message))
        answer, ended = bytearray(), False
        while not ended:
            kind, flags, stream, payload = self.receive()
            if kind == 4 and not flags & 1:
                self.socket.sendall(frame(4, 1, 0, b""))
            elif kind == 6 and not flags & 1:
                self.socket.sendall(frame(6, 1, 0, payload))
            elif kind in (3, 7):
                raise ConnectionError(f"the instance ends the call: {payload!r}")
            elif stream == self.stream:
                if kind == 0:
                    answer += payload
                ended = kind in (0, 1) and flags & 1
        self.stream += 2
        if not answer:
            raise ConnectionError("the instance has failed")
        return bytes(answer[5:])

    def receive(self):
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the instance has closed the connection")
            self.buffer += piece
        length = 9 + int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
        payload = bytes(self.buffer[9:length])
        del self.buffer[:length]
        return kind, flags, stream, payload

    def close(self):
        self.socket.close()


def frame(kind, flags, stream, payload):
    """One frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
