"""Claims, the file they stand in, and the table that a person reads."""

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

from .servers import ROOT


class Spread:
    """One number for each round: the median, and the lowest and highest beside it."""

    def __init__(self, values):
        self.values = list(values)
        self.value = statistics.median(self.values)
        self.low, self.high = min(self.values), max(self.values)

    def json(self):
        return {"value": rounded(self.value), "low": rounded(self.low), "high": rounded(self.high)}


def rounded(value):
    return float(f"{value:.5g}")


def holds(value, target):
    if target is None:
        return None
    sign, bound = re.fullmatch(r"(<=|>=|<|>) ([\d.]+)", target).groups()
    bound = float(bound)
    return {"<=": value <= bound, ">=": value >= bound, "<": value < bound, ">": value > bound}[sign]


def claim(identity, what, values, unit, target=None, peers=None, basis=None):
    spread = Spread(values)
    made = {"id": identity, "what": what, **spread.json(), "unit": unit, "target": target}
    made["holds"] = holds(spread.value, target)
    made["peers"] = {name: rounded(value) for name, value in (peers or {}).items()}
    if basis:
        made["basis"] = basis
    return made


def output_of(*command):
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def conditions(**more):
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": output_of("git", "rev-parse", "--short=12", "HEAD"),
        "cpu": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load average before": rounded(os.getloadavg()[0]),
        **more,
    }


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def number(value):
    if value is None:
        return "–"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def table(header, rows):
    """Columns as wide as they must be; all but the first are aligned right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def claims_table(claims):
    verdict = {True: "holds", False: "MISSED", None: ""}
    rows = [
        [
            one["what"],
            number(one["value"]),
            f"{number(one['low'])} – {number(one['high'])}",
            one["unit"],
            one["target"] or "",
            verdict[one["holds"]],
        ]
        for one in claims
    ]
    return table(["claim", "median", "range", "unit", "target", ""], rows)
