"""What a node asks of an engine beyond computing fast: to give a core back, to end what spins, to make sandboxes, to run the examples."""

import statistics

from harness import contenders as who
from harness.results import Spread, claim, holds
from harness.servers import ROOT, measure

ENGINES = {"aot": "millpond, guard", "wasmtime": "Wasmtime"}


def preemption(kernels, core, ticker, rounds):
    """Kernels that give their core back at every quantum and have it again at once; and two of one that take turns, and find each other's caches."""
    beyond, signals = [], []

    def more(quantum, guests, count):
        """By kernel, in per cent for each round."""
        costs = []
        for kernel in kernels:
            options = ["--core", core, "--ticker", ticker, "--quantum", quantum, "--rounds", rounds, "--guests", guests, "--signals", count]
            report = measure("quantum", *options, ROOT / f"build/kernels/simd/{kernel}.wasm")
            spent = [turns - alone for alone, turns in zip(report["alone_us"], report["turns_us"])]
            costs.append([100 * one / alone for one, alone in zip(spent, report["alone_us"])])
            if count:
                each = zip(spent, report["preemptions"], report["signal_us"])
                beyond.extend(one / max(many, 1) - signal for one, many, signal in each)
                signals.extend(report["signal_us"])
        # Of each kernel its median; the range is that of the rounds.
        mean = statistics.mean(statistics.median(cost) for cost in costs)
        each = [statistics.mean(cost) for cost in zip(*costs)]
        return [min(*each, mean), mean, max(*each, mean)]

    what = f"{len(kernels)} kernels, preempted every"
    made = [
        claim("preemption-1ms", f"{what} 1 ms: more CPU, mean", more(1_000, 1, 100), "%", "<= 3"),
        claim("preemption-5ms", f"{what} 5 ms: more CPU, mean", more(5_000, 1, 0), "%", "<= 1"),
        claim("preemption-1ms-two", f"{what} 1 ms, two of one in turn: more CPU with what caches cost, mean", more(1_000, 2, 0), "%"),
    ]
    # Each round of a kernel by itself is as far off as the kernel's time: their mean is the figure, and its range two standard errors.
    mean, error = statistics.mean(beyond), statistics.stdev(beyond) / len(beyond) ** 0.5
    what = "a preemption and what follows it beyond a signal that native code gets, mean"
    peers = {"that signal, µs": statistics.mean(signals)}
    target = "<= 1"
    one = claim("preemption-switch", what, [mean - 2 * error, mean, mean + 2 * error], "µs", target, peers)
    # A spread that reaches beyond the target shows nothing.
    one["holds"] = holds(mean + 2 * error, target)
    made.append(one)
    return made


def kills(count, core, ticker):
    """A guest that spins has one quantum of 5 ms, which is a node's default, and is ended."""
    options = ["--core", core, "--ticker", ticker, "--quantum", 5_000, "--kills", count]
    report = measure("quantum", *options, ROOT / "build/guests/spin.wasm")
    late = report["late_us"]
    what = f"{count:,} guests that spin, not ended one quantum of 5 ms after their limit"
    peers = {"late, mean, µs": late["mean"], "late, 99th percentile, µs": late["p99"], "late, most, µs": late["max"]}
    return [claim("kills-late", what, [report["too_late"]], "", "<= 0", peers)]


def churn(core, rounds, iterations, scratch):
    """Sandboxes made, run and ended: CPU time of each, with both engines in each round."""
    pong = scratch / "pong"
    pong.write_bytes(b"pong\n")
    given = scratch / "given"
    given.write_bytes(b"x" * 1000)
    made = []
    for name, options in {"ping": ["--expect", pong], "echo": ["--input", given, "--expect", given], "hello-rust": []}.items():
        found = {engine: [] for engine in ENGINES}
        for turn in range(rounds):
            for engine in sorted(found, reverse=turn % 2 == 1):
                arguments = ["--engine", engine, "--core", core, "--iterations", iterations, *options]
                found[engine].append(measure("sandbox", *arguments, ROOT / f"build/guests/{name}.wasm")["cpu_us"])
        peers = {f"{words}, µs": Spread(found[engine]).value for engine, words in ENGINES.items()}
        ratios = [mine / other for mine, other in zip(found["aot"], found["wasmtime"])]
        made.append(claim(f"aot-churn-{name}", f"churn of {name} with aot to that with Wasmtime, CPU", ratios, "×", "<= 1.5", peers))
    return made


def examples(core, rounds, seconds):
    """The example applications, from making a sandbox to its end."""
    made = []
    for example in who.examples():
        if not example.ready():
            continue
        found = {engine: [] for engine in ENGINES}
        for turn in range(rounds):
            for engine in sorted(found, reverse=turn % 2 == 1):
                options = ["--engine", engine, "--core", core, "--seconds", seconds, "--warm", 3, "--memory", example.memory]
                vector = ["--input", example.input, "--expect", example.expected]
                found[engine].append(measure("sandbox", *options, *vector, example.module)["latency_us"]["mean"])
        peers = {f"{words}, µs": Spread(found[engine]).value for engine, words in ENGINES.items()}
        ratios = [other / mine for mine, other in zip(found["aot"], found["wasmtime"])]
        made.append(claim(f"aot-example-{example.name}", f"{example.name}: time with Wasmtime to that with aot", ratios, "×", "> 1", peers))
    return made
