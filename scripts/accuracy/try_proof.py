"""Check `perfwrap try` on planted problems: the change is a gain, and the same one as the fix by hand.

    python scripts/accuracy/try_proof.py                     all cases
    python scripts/accuracy/try_proof.py workers healthy     only those whose names contain one of the words
    python scripts/accuracy/try_proof.py --keep DIR          keep scripts and runs in DIR

Each case is a small script with one problem, and its twin with the fix by hand. The real `perfwrap try` runs on the
script; then the twin runs, too, and the two ratios over the same baseline are compared. Scripts without a problem must
show no gain. The exit code is 1 if a change is not called a gain, if the intervals of both ratios do not overlap, if a
healthy script shows a gain, or if a file appeared in a script's folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfwrap.experiments import judge
from perfwrap.experiments.plan import BASELINE
from perfwrap.experiments.reading import Reading, read, read_timeline
from perfwrap.experiments.runner import Ended, Settings, run_once
from perfwrap.experiments.statistics import Ratio, TimedRun, ratio

HAND = "by hand"
STEPS = 40
ROUNDS = 2

PROGRAM = """import gc, os, sys, tempfile, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Data(Dataset):
    def __len__(self):
        return {samples}

    def __getitem__(self, index):
        {work}
        return torch.full(({width},), index / {samples}), torch.tensor([1.0])


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        total = sum(float(model(x).sum()) for x, _ in loader)
    model.train()
    return total


def main():
    torch.manual_seed(0)
    {setup}
    model = {model}
    optimizer = {optimizer}
    loader = {loader}
    held_out = DataLoader(TensorDataset(torch.zeros(512, {width}), torch.zeros(512, 1)), batch_size=32)
    kept, step = [], 0
    folder = tempfile.mkdtemp()
    for epoch in range({epochs}):
        for x, y in loader:
            {zero}
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            {after}
    print("loss", loss.item())


if __name__ == "__main__":
    main()
"""
PIECES = {
    "samples": "4000",
    "work": "pass",
    "width": "64",
    "setup": "pass",
    "model": "nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))",
    "optimizer": "torch.optim.SGD(model.parameters(), lr=0.001)",
    "loader": "DataLoader(Data(), batch_size=8)",
    "epochs": "30",
    "zero": "optimizer.zero_grad()",
    "after": "pass",
}
LAYERS = "nn.Sequential(nn.Linear(64, 1), *[nn.Linear(1, 1) for _ in range(150)])"
SLEEP = "time.sleep(0.002)"
SUGGESTED = "SUGGESTED"
"""Placeholder in a fixed script for the number that the diagnosis suggested."""


@dataclass(frozen=True)
class Case:
    """A script: the pieces with the planted problem, those of the fix, and the arguments of `perfwrap try`."""

    name: str
    change: str
    """The change that must be a gain; with ``=`` at its end, any of that kind."""
    planted: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] | None = None
    """The changes to try; None for ``change``, empty for the suggestions of the diagnosis."""
    options: tuple[str, ...] = ()
    helps: bool = True
    sweeps: bool = False
    """Whether every variant of the kind is also fixed by hand, a gain or not."""


CASES = (
    Case(
        "workers-suggested",
        "workers=",
        {"work": SLEEP},
        {"loader": f"DataLoader(Data(), batch_size=8, num_workers={SUGGESTED})"},
        (),
    ),
    Case(
        "workers-sweep",
        "workers=",
        {"work": SLEEP},
        {"loader": f"DataLoader(Data(), batch_size=8, num_workers={SUGGESTED})"},
        (),
        ("--preset", "workers"),
        sweeps=True,
    ),
    Case(
        "workers-augment",
        "workers=1",
        {
            "work": "sum(i * i for i in range(9000))",
            "loader": "DataLoader(Data(), batch_size=16)",
            "model": "nn.Sequential(nn.Linear(64, 2048), nn.Linear(2048, 512), nn.Linear(512, 1))",
        },
        {"loader": "DataLoader(Data(), batch_size=16, num_workers=1)"},
    ),
    Case(
        "prefetch",
        "prefetch=8",
        {
            "work": "time.sleep(0.001)",
            "loader": "DataLoader(Data(), batch_size=8, num_workers=1)",
            "after": "time.sleep(0.06) if step % 8 == 7 else None",
        },
        {"loader": "DataLoader(Data(), batch_size=8, num_workers=1, prefetch_factor=8)"},
    ),
    Case(
        "cached-batch",
        "cached-batch",
        {"work": SLEEP},
        {"loader": "[next(iter(DataLoader(Data(), batch_size=8)))] * 500"},
    ),
    Case(
        "persistent-workers",
        "persistent-workers",
        {"samples": "80", "loader": "DataLoader(Data(), batch_size=8, num_workers=1)"},
        {"loader": "DataLoader(Data(), batch_size=8, num_workers=1, persistent_workers=True)"},
    ),
    Case(
        "gc-freeze",
        "gc-freeze",
        {"setup": "records = [[{'a': i}, [i]] for i in range(400000)]", "after": "gc.collect()"},
        {"after": "gc.collect() if step != 5 else gc.freeze()"},
    ),
    Case(
        "threads",
        "threads=1",
        {
            "setup": "torch.set_num_threads(16)",
            "model": "nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))",
            "loader": "DataLoader(Data(), batch_size=64)",
        },
        {"setup": "torch.set_num_threads(1)"},
    ),
    Case(
        "fused-optimizer",
        "fused-optimizer",
        {"model": LAYERS, "optimizer": "torch.optim.AdamW(model.parameters(), lr=0.001)"},
        {"optimizer": "torch.optim.AdamW(model.parameters(), lr=0.001, fused=True)"},
    ),
    Case(
        "no-debug",
        "no-debug",
        {"model": LAYERS, "setup": "torch.autograd.set_detect_anomaly(True)"},
        {"setup": "pass"},
    ),
    Case(
        "no-validation",
        "no-validation",
        {"after": "evaluate(model, held_out) if step % 5 == 0 else None"},
        {"after": "pass"},
    ),
    Case(
        "no-checkpoint",
        "no-checkpoint",
        {
            "model": "nn.Sequential(nn.Linear(64, 4096), nn.Linear(4096, 256), nn.Linear(256, 1))",
            "after": "torch.save(model.state_dict(), os.path.join(folder, 'last.pt')) if step % 5 == 0 else None",
        },
        {"after": "pass"},
        options=("--allow-writes",),
    ),
    Case(
        "batch-size",
        "batch-size=64",
        {"loader": "DataLoader(Data(), batch_size=4)"},
        {"loader": "DataLoader(Data(), batch_size=64)"},
    ),
    Case(
        "set-to-none",
        "set-to-none",
        {
            "model": "nn.Sequential(nn.Linear(64, 4096), nn.Linear(4096, 1024), nn.Linear(1024, 1))",
            "loader": "DataLoader(Data(), batch_size=1)",
            "zero": "optimizer.zero_grad(set_to_none=False)",
        },
        {"zero": "optimizer.zero_grad(set_to_none=True)"},
    ),
    Case(
        "healthy-workers",
        "workers=2",
        {
            "model": "nn.Sequential(nn.Linear(64, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 1))",
            "loader": "DataLoader(TensorDataset(torch.rand(40000, 64), torch.rand(40000, 1)), batch_size=64)",
        },
        helps=False,
    ),
    Case("healthy-twice", "none", {"work": SLEEP}, helps=False),
    Case("healthy-gc-freeze", "gc-freeze", {"work": SLEEP}, helps=False),
)


def main() -> int:
    """Run the requested cases and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="run only cases whose names contain one of these")
    parser.add_argument("--keep", type=Path, help="keep scripts and runs in this new folder")
    arguments = parser.parse_args()
    cases = [
        case for case in CASES if not arguments.words or any(word in case.name for word in arguments.words)
    ]
    print(f"{'case':<20} {'change':<19} {'judged':<9} {'perfwrap try':<24} {'fixed by hand':<24}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        good = [prove(case, folder / case.name) for case in cases]
    print(f"\n{sum(good)} of {len(good)} cases correct")
    return 0 if good and all(good) else 1


def prove(case: Case, folder: Path) -> bool:
    """Run one case, print its result, and return whether it is correct."""
    folder.mkdir()
    script, twin = folder / "train.py", folder / "fixed.py"
    script.write_text(PROGRAM.format(**{**PIECES, **case.planted}), encoding="utf-8")
    twin.touch()
    words = (case.change,) if case.words is None else case.words
    files = sorted(path.name for path in folder.iterdir())
    document = tried(script, words, case.options)
    clean = sorted(path.name for path in folder.iterdir() if path.name != "try") == files
    named = str.startswith if case.change.endswith("=") else str.__eq__
    rows = [
        row for row in document["variants"] if named(row["name"], case.change) and row["status"] != "unused"
    ]
    if not rows or any(row["ratio"] is None for row in rows):
        reason = (
            "was not tried" if not rows else "; ".join(f"{row['status']}: {row['reason']}" for row in rows)
        )
        print(f"BAD {case.name:<16} {case.change:<19} {reason}", flush=True)
        return not case.helps and bool(rows)
    found = [judged(case, row, twin, folder) for row in rows]
    return all(found) and clean


def judged(case: Case, row: dict[str, Any], twin: Path, folder: Path) -> bool:
    """Make the fix of a row's change by hand, print both ratios, and return whether they agree."""
    measured, change = Ratio(row["ratio"], row["low"], row["high"]), row["name"]
    text = PROGRAM.format(**{**PIECES, **case.planted, **case.fixed})
    twin.write_text(text.replace(SUGGESTED, change.partition("=")[2]), encoding="utf-8")
    by_hand = run_fixed(twin, folder, case) if case.fixed else None
    agrees = by_hand is None or overlap(measured, by_hand)
    right = agrees and (case.sweeps or (row["judgement"] == "gain") is case.helps)
    print(
        f"{'ok ' if right else 'BAD'} {case.name:<16} {change:<19} {row['judgement']:<9} {shown(measured):<24} "
        f"{shown(by_hand) if by_hand else '-':<24}{'' if agrees else 'differ'}",
        flush=True,
    )
    return right


def tried(script: Path, words: tuple[str, ...], options: tuple[str, ...]) -> dict[str, Any]:
    """Run the command as a user would and return its try.json."""
    out = script.parent / "try"
    command = ["try", "--steps", str(STEPS), "--repeats", str(ROUNDS), "--out", str(out), *options]
    done = subprocess.run(
        [sys.executable, "-m", "perfwrap", *command, *words, "--", sys.executable, script.name],
        cwd=script.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    (out / "printed.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    document: dict[str, Any] = json.loads((out / "try.json").read_text(encoding="utf-8"))
    return document


def run_fixed(twin: Path, folder: Path, case: Case) -> Ratio:
    """Return the ratio of the twin over the script; the earlier baselines count, too."""
    os.environ["OMP_NUM_THREADS"] = "1"
    settings = Settings(steps=STEPS, precision=0.0, allow_writes="--allow-writes" in case.options)
    earlier = [path for path in sorted((folder / "try").iterdir()) if path.name.endswith(BASELINE)]
    ends = [(BASELINE, Ended(path, "ended", 0, 0.0)) for path in earlier]
    for _ in range(ROUNDS):
        command = [sys.executable, str(twin)]
        place = folder / f"hand-{len(list(folder.glob('hand-*')))}"
        ends.append((HAND, run_once(command, (), place, settings, lambda _: None, 600)))
    readings = [(name, read(ended, (), read_timeline(ended.run))) for name, ended in ends]
    found = compared([(name, reading) for name, reading in readings if reading.steps.number.size])
    if found is None:
        raise SystemExit(f"{case.name}: {[(name, one.status, one.reason) for name, one in readings]}")
    return found


def compared(readings: list[tuple[str, Reading]]) -> Ratio | None:
    """Return the ratio of the twin's steps; of its samples if the batches differ."""
    steps = judge.without_standstills([reading.steps for _, reading in readings])
    sizes = {float(one.samples.mean()) for one in steps}
    runs = [
        TimedRun(name, one.duration_ns / (one.samples.clip(1) if len(sizes) > 1 and min(sizes) > 0 else 1))
        for (name, _), one in zip(readings, steps, strict=True)
    ]
    return ratio(runs, HAND, BASELINE)


def overlap(one: Ratio, other: Ratio) -> bool:
    """Return whether the intervals of two ratios overlap."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def shown(found: Ratio) -> str:
    """Return a ratio with its interval."""
    ends = "" if found.low is None or found.high is None else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.value:.3f}{ends}"


if __name__ == "__main__":
    sys.exit(main())
