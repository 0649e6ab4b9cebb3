"""Compare the simulation of DataLoader workers with real loops whose times are known.

    python scripts/accuracy/loader_simulation.py                  all loads, about 5 minutes on two quiet cores
    python scripts/accuracy/loader_simulation.py cpu network      only loads whose names contain one of the words
    python scripts/accuracy/loader_simulation.py --rounds 3       each setting 3 times; the medians are used
    python scripts/accuracy/loader_simulation.py --tries 5        try a disturbed setting up to 5 times

A loop of a real torch DataLoader trains with num_workers 0, 1, 2 and 4 and prefetch_factor 1, 2 and 8, with and without
another program that uses one core. Items and steps are a fixed number of Python operations and a pause. The simulation
gets only what the loop without workers measured in the same round: the time of each batch and each step, and their CPU
time. The settings of a round run in turns.

On a machine that others use, each loop runs again while other programs used more than 0.1 core, and the best try
counts. The simulation gets what they used during that try; the last column shows it. The table counts where that is
near 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import perfwrap.measures.data_loading.loader_simulation as simulation

SETTINGS = [(0, 2), (1, 2), (2, 1), (2, 2), (2, 8), (4, 2)]
"""num_workers and prefetch_factor."""
BATCH, BATCHES = 16, 80
CALIBRATION = 200_000
REPLY_NS = 5_000_000
"""The interval after which Python passes its lock on; the items compute in Python."""
QUIET = 0.1
"""Cores that other programs may use without disturbing a loop."""


@dataclass(frozen=True)
class Synthetic:
    """A load: milliseconds for a batch and a step, with and without need for a core."""

    item_cpu_ms: float
    item_pause_ms: float
    step_ms: float
    uneven: float = 0.0
    """Every eighth batch takes this many times as long in addition."""
    floats: int = 3072
    """Numbers per item."""


LOADS = {
    "cpu 15 + 5": Synthetic(15, 0, 5),
    "cpu 6 + 12": Synthetic(6, 0, 12),
    "network 20 + 4": Synthetic(1, 19, 4),
    "half 12 + 6": Synthetic(6, 6, 6),
    "bursts 5 + 10": Synthetic(5, 0, 10, uneven=6.0),
    "light 1 + 6": Synthetic(1, 0, 6),
    "large 10 + 10": Synthetic(10, 0, 10, floats=3 * 64 * 64),
}

PROGRAM = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

def work(operations):
    total = 0
    for number in range(operations):
        total += number
    return total

class Items(Dataset):
    def __init__(self, spec):
        self.spec = spec

    def __len__(self):
        return self.spec["batch"] * self.spec["batches"]

    def __getitem__(self, index):
        spec = self.spec
        slow = 1 + spec["uneven"] * (index // spec["batch"] % 8 == 7)
        work(int(spec["per_ms"] * spec["item_cpu_ms"] / spec["batch"] * slow))
        if spec["item_pause_ms"]:
            time.sleep(spec["item_pause_ms"] / spec["batch"] / 1000)
        return torch.full((spec["floats"],), float(index))

def busy():
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:]]
    return (sum(ticks[:3]) + sum(ticks[5:7])) / os.sysconf("SC_CLK_TCK")

def own():
    return sum(os.times()[:4])

def train(spec):
    more = {"prefetch_factor": spec["prefetch"]} if spec["workers"] else {}
    loader = iter(DataLoader(Items(spec), batch_size=spec["batch"], num_workers=spec["workers"], **more))
    waits, steps, cpu = [], [], [0.0, 0.0]
    begun, all_busy, mine = time.perf_counter(), busy(), own()
    at, used = time.perf_counter(), time.thread_time()
    for batch in loader:
        then, spent = time.perf_counter(), time.thread_time()
        waits.append(then - at)
        cpu[0] += spent - used
        work(int(spec["per_ms"] * spec["step_ms"]))
        at, used = time.perf_counter(), time.thread_time()
        steps.append(at - then)
        cpu[1] += used - spent
    del loader
    taken = (busy() - all_busy - (own() - mine)) / (time.perf_counter() - begun)
    print(json.dumps({"waits": waits, "steps": steps, "cpu": cpu, "taken": max(0.0, taken)}), flush=True)

torch.set_num_threads(1)
for line in sys.stdin:
    train(json.loads(line))
"""


@dataclass(frozen=True)
class Measured:
    """One loop: seconds of each wait and step, CPU seconds of both, and the mean cores that other programs used."""

    waits: list[float]
    steps: list[float]
    cpu: tuple[float, float]
    taken: float

    @property
    def mean_ns(self) -> float:
        """The mean time from one batch to the next, without the start of the workers."""
        return 1e9 * (sum(self.waits[1:]) + sum(self.steps)) / len(self.steps)

    def load(self, floats: int) -> simulation.Load:
        """Return the work of a loop without workers, as if it had had a core of its own."""
        making_cpu, using_cpu = self.cpu
        ran = min(1.0, using_cpu / sum(self.steps))
        paused = max(0.0, sum(self.waits) - making_cpu / ran)
        free = (making_cpu + paused) / sum(self.waits)
        return simulation.Load(
            making=tuple(1e9 * value * free for value in self.waits),
            using=tuple(1e9 * value * ran for value in self.steps),
            making_cpu=making_cpu / (making_cpu + paused),
            width=1.0,
            receive_ns=simulation.RECEIVE_NS + 64 * floats * simulation.RECEIVE_NS_PER_BYTE,
            send_ns=simulation.SEND_NS + 64 * floats * simulation.SEND_NS_PER_BYTE,
            reply_ns=REPLY_NS,
            epoch=BATCHES * 1000,
        )


class Loops:
    """A Python process that has imported torch and runs loops."""

    def __init__(self, script: Path, per_ms: float, tries: int) -> None:
        self._per_ms, self._tries = per_ms, tries
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, str(script)], text=True, **pipes)  # type: ignore[call-overload]

    def run(self, load: Synthetic, workers: int, prefetch: int, others: int) -> Measured:
        """Return the loop that other programs, besides ``others`` known ones, disturbed least."""
        spec = asdict(load) | {"workers": workers, "prefetch": prefetch, "per_ms": self._per_ms}
        spec |= {"batch": BATCH, "batches": BATCHES}
        found: list[Measured] = []
        while not found or (len(found) < self._tries and found[-1].taken > QUIET + others):
            self._process.stdin.write(json.dumps(spec) + "\n")
            self._process.stdin.flush()
            found.append(Measured(**json.loads(self._process.stdout.readline())))
        return min(found, key=lambda each: each.taken)

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def operations_per_ms() -> float:
    """Return how many loops of the program's work one millisecond of a core is."""
    found = []
    for _ in range(5):
        start, total = time.thread_time(), 0
        for number in range(CALIBRATION):
            total += number
        found.append(CALIBRATION / (time.thread_time() - start) / 1000)
    return max(found)


def compare(name: str, others: int, rounds: int, loops: Loops) -> list[float]:
    """Print the rows of one load and return the errors of the predicted step times."""
    allowed = len(os.sched_getaffinity(0))
    rows: dict[tuple[int, int], list[tuple[float, float, float]]] = {setting: [] for setting in SETTINGS}
    for _ in range(rounds):
        found = {setting: loops.run(LOADS[name], *setting, others) for setting in SETTINGS}
        load = found[0, 2].load(LOADS[name].floats)
        today = simulation.simulate(load, simulation.Cores(None), 0).batch_ns
        for setting, measured in found.items():
            cores = simulation.Cores(max(0.2, allowed - measured.taken))
            expected = simulation.simulate(load, cores, *setting, batches=BATCHES).batch_ns
            rows[setting].append((expected / today, measured.mean_ns / today, measured.taken))
    errors = []
    for setting, values in rows.items():
        expected, measured, taken = (statistics.median(column) for column in zip(*values, strict=True))
        errors.append(expected / measured - 1.0)
        print(
            f"| {name} | {setting[0]} | {setting[1]} | {expected:.2f} | {measured:.2f} | {errors[-1]:+.0%} | "
            f"{taken:.2f} |",
            flush=True,
        )
    return errors


def main() -> int:
    """Run the requested loads and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only loads whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=1, help="how often each setting runs (1)")
    parser.add_argument("--tries", type=int, default=3, help="how often a disturbed loop runs (3)")
    parser.add_argument("--alone", action="store_true", help="only without the other program")
    arguments = parser.parse_args()
    names = [name for name in LOADS if not arguments.words or any(word in name for word in arguments.words)]
    errors: list[float] = []
    print(
        "| load: batch + step, ms | num_workers | prefetch_factor | simulated | measured | error | taken by others |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(PROGRAM, encoding="utf-8")
        loops = Loops(script, operations_per_ms(), arguments.tries)
        for others in (0,) if arguments.alone else (0, 1):
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
            try:
                for name in names:
                    errors += compare(name, others, arguments.rounds, loops)
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
        loops.end()
    sizes = sorted(abs(error) for error in errors)
    print(
        f"\nmedian error of the step time {statistics.median(sizes):.0%}, 90th percentile "
        f"{sizes[int(0.9 * (len(sizes) - 1))]:.0%}, over {len(sizes)} settings"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
