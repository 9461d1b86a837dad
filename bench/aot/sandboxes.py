"""What a node asks of an engine beyond computing fast: to give a core back, to end what spins, to make sandboxes, to run the examples."""

import statistics

from harness import contenders as who
from harness.results import Spread, claim, holds
from harness.servers import ROOT, measure

ENGINES = {"aot": "millpond, guard", "wasmtime": "Wasmtime"}


def preemption(kernels, core, ticker, rounds):
    """Kernels that give their core back at every quantum and have it again at once; and two of one that take turns, and find each other's caches."""

    def more(quantum, guests):
        """By kernel, in per cent for each round."""
        costs = []
        for kernel in kernels:
            options = ["--core", core, "--ticker", ticker, "--quantum", quantum, "--rounds", rounds, "--guests", guests]
            report = measure("quantum", *options, ROOT / f"build/kernels/simd/{kernel}.wasm")
            costs.append([100 * (turns - alone) / alone for alone, turns in zip(report["alone_us"], report["turns_us"])])
        # Of each kernel its median; the range is that of three parts of the rounds, each by itself.
        of = lambda part: statistics.mean(statistics.median(cost[part]) for cost in costs)
        mean, parts = of(slice(None)), [of(slice(part, None, 3)) for part in range(3)]
        return [min(*parts, mean), mean, max(*parts, mean)]

    what = f"{len(kernels)} kernels, preempted every"
    return [
        claim("preemption-1ms", f"{what} 1 ms: more CPU, mean", more(1_000, 1), "%", "<= 3"),
        claim("preemption-5ms", f"{what} 5 ms: more CPU, mean", more(5_000, 1), "%", "<= 1"),
        claim("preemption-1ms-two", f"{what} 1 ms, two of one in turn: more CPU with what caches cost, mean", more(1_000, 2), "%"),
    ]


def switch(rounds, core, ticker):
    """A guest without a memory to speak of, preempted and resumed by every signal, and native code that gets as many."""
    report = measure("switch", "--core", core, "--ticker", ticker, "--period", 50, "--rounds", rounds, ROOT / "build/guests/work.wasm")
    signals, preemptions = report["signal_us"], report["preemption_us"]
    beyond = [one - other for one, other in zip(preemptions, signals)]
    # Now and then a round has a disturbed half: the median is the figure, and its range what holds it in 95 of 100 cases, by the ranks.
    beyond.sort()
    middle, reach = len(beyond) / 2, 0.98 * len(beyond) ** 0.5
    low, high = beyond[max(0, int(middle - reach))], beyond[min(len(beyond) - 1, int(middle + reach))]
    what = f"a preemption and resumption beyond the signal that brings it, median of {rounds} rounds, {report['preemptions']:,} in all"
    peers = {"that signal to native code, µs": statistics.median(signals)}
    target = "<= 1"
    one = claim("preemption-switch", what, [low, statistics.median(beyond), high], "µs", target, peers)
    # A spread that reaches beyond the target shows nothing.
    one["holds"] = holds(high, target)
    return [one]


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
