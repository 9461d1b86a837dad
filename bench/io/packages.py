"""Deployment packages of the functions: ZIP files with what they require and its bytecode, as `millpond deploy` makes them. They are kept from one run to the
next, since the largest have 200 MiB."""

import hashlib
import subprocess
import sys
import zipfile

from harness.servers import ROOT

KEPT = ROOT / "build/bench/io/packages"


def compiled(folder):
    """Bytecode that is never compared with its source, whose place is that in a function."""
    command = [sys.executable, "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", folder, "-p", "/var/task", folder]
    # What does not compile is for another Python, or for none.
    subprocess.run([str(word) for word in command], check=False, stdout=subprocess.DEVNULL)


def installed(requirements):
    """A folder with what a file of requirements names."""
    text = requirements.read_bytes()
    folder = KEPT / f"installed-{hashlib.sha256(text).hexdigest()[:16]}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile", "--upgrade", "--target", new]
        subprocess.run([str(word) for word in [*command, "-r", requirements]], check=True)
        compiled(new)
        new.rename(folder)
    return folder


def packed(name, sources, requirements=None):
    """The package `name` of these files and what `requirements` names."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + (requirements.read_bytes() if requirements else b""))
    package = KEPT / f"{name}-{digest.hexdigest()[:16]}.zip"
    if package.exists():
        return package
    own = KEPT / f"own-{name}"
    own.mkdir(parents=True, exist_ok=True)
    for source in sources:
        (own / source.name).write_bytes(source.read_bytes())
    compiled(own)
    folders = ([installed(requirements)] if requirements else []) + [own]
    new = package.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for folder in folders:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(folder))
    new.rename(package)
    return package
