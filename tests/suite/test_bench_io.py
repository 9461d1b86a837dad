"""The coupled baseline of bench/io is the product's own confinement with a network: the lines that make the difference are still where they were."""

import subprocess
import sys

from harness import ROOT


def test_the_baseline_differs_by_its_network_alone():
    code = """
import baseline
made = baseline.sources()
for name in baseline.NETWORK:
    old = (baseline.ROOT / "crates/confine/src" / name).read_text()
    assert made[f"confine/src/{name}"] != old, name
same = {file.name for file in (baseline.ROOT / "crates/confine/src").glob("*.rs")} - baseline.NETWORK.keys()
assert "cell.rs" in same
for name in same:
    assert made[f"confine/src/{name}"] == (baseline.ROOT / "crates/confine/src" / name).read_text(), name
"""
    path = f"{ROOT / 'bench'}:{ROOT / 'bench/io'}"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
