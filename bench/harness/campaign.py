"""One run of a bench: contenders that take part in turn, round after round, and the claims that come of it.

A disturbance meets all contenders; a claim is the median of the rounds' ratios. A ratio compares throughputs where both
servers' core was at least 98 % busy and the client's was not, and CPU time for each request otherwise; both are in the file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import plots, results
from . import contenders as who
from .results import Spread, claim, number, rounded
from .servers import ROOT, Unavailable, allow_many_connections, load


class Campaign:
    PARTS = []
    # Whether it measures others' work beside ours, which has to be fetched and built first.
    PEERS = True

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.rounds = 2 if options.quick else 5
        self.pace = 0.3 if options.quick else 1.0
        self.logs = ROOT / "build/bench/logs"
        self.claims, self.series, self.missing, self.drawings = [], [], {}, {}
        self.wrong = {}
        self.turn = 0
        # Of each open loop: how late the client itself was, in microseconds.
        self.late = []

    @classmethod
    def add_options(cls, parser):
        """Options that only this bench has."""

    @classmethod
    def is_whole(cls, options):
        """Whether these leave nothing out."""
        return True

    @classmethod
    def conditions(cls):
        """What else a reader must know to judge the numbers."""
        return {}

    def close(self):
        """Ends what it has started for all of its parts."""

    def file(self, name, content):
        path = self.scratch / name
        path.write_bytes(content)
        return path

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def start(self, stack, name, make, /, *arguments, **more):
        """Starts a contender, or notes why it cannot take part."""
        try:
            server = make(self.options.server_core, *arguments, **more)
        except Unavailable as reason:
            self.lacks(name, str(reason))
            return None
        stack.callback(server.stop)
        return server

    def lacks(self, name, reason):
        if name not in self.missing:
            self.say(f"  not taking part: {name}: {reason}")
        self.missing[name] = reason

    def in_turn(self, slots):
        """`slots`: name → function that measures once. Every round begins with another contender."""
        measured = {name: [] for name in slots}
        names = list(slots)
        for turn in range(self.rounds):
            self.turn = turn
            for name in names[turn % len(names):] + names[: turn % len(names)]:
                if name not in measured:
                    continue
                try:
                    measured[name].append(slots[name]())
                except Unavailable as reason:
                    # It is out of this comparison; the others go on.
                    self.lacks(name if isinstance(name, str) else ", ".join(name), str(reason))
                    del measured[name]
        return measured

    def slot(self, server, name, **slot):
        """A slot of load, whose errors are counted."""
        return lambda: self.load(server, name, **slot)

    def load(self, server, name, seconds, **slot):
        """Loads a server once. In a round everyone gets the same arrivals, in the next others."""
        report = load(server, self.options.client_core, seconds=seconds * self.pace, seed=self.turn + 1, **slot)
        if report["late_us"]:
            self.late.append(report["late_us"]["p99"])
        errors = sum(report["errors"].values())
        if report["requests"] == 0:
            report["first_error"] = report["first_error"] or "no answer in the window"
            errors += 1
        if errors:
            count, first = self.wrong.get(name, (0, report["first_error"]))
            self.wrong[name] = (count + errors, first)
        return report

    def keep(self, part, at, measured):
        """Notes a measurement's series: medians over the rounds, and their range for the throughput."""
        for name, reports in measured.items():
            middle = lambda *path: rounded(Spread(dig(report, path) for report in reports).value)
            one = {"part": part, "at": at, "contender": name, "throughput": Spread(r["throughput"] for r in reports).json()}
            one["latency_us"] = {key: middle("latency_us", key) for key in ("mean", "p50", "p99", "p999")}
            if all(report["late_us"] for report in reports):
                one["client_late_us"] = {key: middle("late_us", key) for key in ("p99", "max")}
            for key in ("server_cpu_us", "server_busy", "server_core_busy", "client_busy"):
                one[key] = middle(key)
            self.series.append(one)

    def find(self, part, contender):
        """The series of one contender: at → its entry."""
        return {one["at"]: one for one in self.series if one["part"] == part and one["contender"] == contender}

    def names(self, part):
        return list(dict.fromkeys(one["contender"] for one in self.series if one["part"] == part))

    def ratio_claim(self, identity, what, ours, peer, measured, target=None):
        """How many times the peer's throughput ours is, round by round."""
        if ours not in measured or peer not in measured:
            return
        pairs = list(zip(measured[ours], measured[peer]))
        saturated = all(is_saturated(one) for pair in pairs for one in pair)
        throughputs = [mine["throughput"] / theirs["throughput"] for mine, theirs in pairs if theirs["requests"]]
        costs = [theirs["server_cpu_us"] / mine["server_cpu_us"] for mine, theirs in pairs if mine["server_cpu_us"]]
        values = throughputs if saturated else costs
        if not values:
            return
        basis = "throughput" if saturated else "CPU time"
        middle = lambda name, key: Spread(report[key] for report in measured[name]).value
        peers = {
            f"{ours}, requests/s": middle(ours, "throughput"),
            f"{peer}, requests/s": middle(peer, "throughput"),
            f"{ours}, CPU µs": middle(ours, "server_cpu_us"),
            f"{peer}, CPU µs": middle(peer, "server_cpu_us"),
        }
        self.claims.append(claim(identity, f"{what}, by {basis}", values, "×", target, peers, basis))

    # --- what a person reads -----------------------------------------------------------------------------------------

    def show(self, part, at, label=None):
        rows = []
        for one in self.series:
            if one["part"] == part and one["at"] == at:
                latency = one["latency_us"]
                rows.append(
                    [one["contender"], number(one["throughput"]["value"]), *(number(latency[k]) for k in ("mean", "p50", "p99", "p999"))]
                    + [number(one["server_cpu_us"])]
                    + [f"{100 * one[key]:.0f}" for key in ("server_busy", "server_core_busy", "client_busy")]
                )
        header = [f"{part}, {label or at}", "requests/s", "mean µs", "p50", "p99", "p99.9", "CPU µs", "server %", "its core %", "client %"]
        print(results.table(header, rows) + "\n", flush=True)


def dig(report, path):
    for key in path:
        report = report[key]
    return report


def is_saturated(report):
    """The server's core has no time left, the server itself used it, and the client is not what limits."""
    return report["server_core_busy"] >= 0.98 and report["server_busy"] >= 0.95 and report["client_busy"] < 0.98


def command_line(name, whole):
    """What makes the same again."""
    if whole:
        return f"make bench-{name}"
    script = Path(sys.argv[0]).resolve()
    return " ".join([str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name, *sys.argv[1:]])


def conduct(name, campaign, description, ours, places, prepare=(), figures=None, build=("--all-targets",)):
    """Runs a bench from its command line. `ours` names the contenders whose wrong answers are a claim; `places` gives the
    drawings their colours' order; `prepare` are commands that run first; `figures` is where drawings go that the manual shows;
    `build` is what the bench needs of the workspace."""
    parts = campaign.PARTS
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", "--part", help=f"parts, separated by commas: {', '.join(parts)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter slots")
    parser.add_argument("--built", action="store_true", help="measure what is built already")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a folder for results and drawings")
    campaign.add_options(parser)
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else parts
    if unknown := [part for part in wanted if part not in parts]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    if max(options.server_core, options.client_core) >= (os.cpu_count() or 1):
        parser.error("this machine has not that many cores: give --server-core and --client-core")
    whole = wanted == parts and not options.quick and campaign.is_whole(options)
    output = options.output or (ROOT / "bench/results" if whole else ROOT / "build/bench/results")

    if campaign.PEERS:
        subprocess.run([ROOT / "bench/setup"], check=True)
    # The whole workspace, as `make build` does: alone, a package has other features of its dependencies.
    if not options.built:
        subprocess.run(["cargo", "build", "--quiet", "--release", "--workspace", *build], cwd=ROOT, check=True)
    for command in prepare:
        subprocess.run(command, check=True)
    allow_many_connections()
    began = time.monotonic()
    conditions = results.conditions(
        versions=who.versions(),
        **{"server core": options.server_core, "client core": options.client_core},
        **campaign.conditions(),
    )
    scratch = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    bench = campaign(options, scratch)
    try:
        plots.PLACES.update(places)
        conditions["rounds"] = bench.rounds
        for part in wanted:
            try:
                getattr(bench, part)()
            except Unavailable as reason:
                bench.missing[part] = str(reason)
                bench.say(f"  {part} stopped: {reason}")
    finally:
        bench.close()
        shutil.rmtree(scratch, ignore_errors=True)
    conditions["load average after"] = rounded(os.getloadavg()[0])
    conditions["seconds"] = round(time.monotonic() - began)
    mine = sum(count for contender, (count, _) in bench.wrong.items() if contender in ours)
    others = {contender: count for contender, (count, _) in bench.wrong.items() if contender not in ours}
    if bench.late:
        what = "how late the client itself came to requests of open loops, 99th percentile of each slot"
        bench.claims.append(claim("client-late", what, bench.late, "µs"))
    bench.claims.append(claim("wrong-answers", "answers of the node that were wrong or missing", [mine], "", "<= 0", others))
    results.write(
        output / f"{name}.json",
        {"conditions": conditions, "claims": bench.claims, "missing": bench.missing, "series": bench.series},
    )
    drawn = figures if figures and output == ROOT / "bench/results" else output
    for drawing, (title, panels, note) in bench.drawings.items():
        plots.draw(drawn / f"{name}-{drawing}.svg", title, panels, note, command_line(name, whole))
    print(results.claims_table(bench.claims))
    for contender, (count, first) in bench.wrong.items():
        print(f"{contender}: {count} wrong answers; the first: {first}")
    for missing, reason in bench.missing.items():
        print(f"not measured: {missing}: {reason}")
    print(f"{conditions['seconds']} s; written to {output}")
    return 0
