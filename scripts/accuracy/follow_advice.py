"""Follow the advice about DataLoaders literally, and check the prediction and the next report.

    python scripts/accuracy/follow_advice.py                            the demo and three workloads
    python scripts/accuracy/follow_advice.py --rounds 10 train_digits   only the demo, 10 times
    python scripts/accuracy/follow_advice.py --keep DIR SCRIPT.py       any script; keep the runs in DIR

Runs a script under ``perfwrap run``, changes its DataLoader (num_workers, persistent_workers, prefetch_factor) and its
number of threads as the report advises, and runs it again. Prints the predicted and the measured ratio of the mean step
times, and what the second report says about the changed settings: nothing should. On two quiet cores the range should
contain the measured ratio in nine of ten rounds; other programs that use the machine disturb both runs.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import perfwrap
from labelled import WORKLOADS
from savings import mean_step_ns

DEMO = Path(perfwrap.__file__).parent / "demo" / "train_digits.py"
DEFAULT = (DEMO, *(WORKLOADS / f"single_process_{name}.py" for name in ("loader", "text", "recommender")))
ADVISERS = ("data_loader_single_process", "too_few_workers", "shallow_prefetch", "worker_restart")
ACCUSERS = (*ADVISERS[1:], "too_many_workers", "needless_workers", "thread_oversubscription")
SETTINGS = {
    "num_workers": r"num_workers=(\d+)",
    "prefetch_factor": r"prefetch_factor=(\d+)",
    "persistent_workers": r"persistent_workers=(True)",
}
THREADS = r"torch\.set_num_threads\((\d+)\)"


def record(script: Path, out: Path) -> dict[str, Any]:
    """Run a script and return its diagnosis. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "perfwrap", "run", "--out", str(out), "--", sys.executable, str(script)]
    subprocess.run(command, capture_output=True, check=True, cwd=out.parent, env=dict(os.environ))
    found: dict[str, Any] = json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    return found


def follow(source: str, line: int, advice: str) -> str:
    """Return the source with the DataLoader that is created at that line changed as advised."""
    found = {name: match[1] for name, pattern in SETTINGS.items() if (match := re.search(pattern, advice))}
    tree = ast.parse(source)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    call = next(node for node in calls if ast.unparse(node.func).rpartition(".")[2] == "DataLoader")
    kept = [keyword for keyword in call.keywords if keyword.arg not in found]
    call.keywords = [
        *kept,
        *(ast.keyword(name, ast.parse(value).body[0].value) for name, value in found.items()),
    ]  # type: ignore[attr-defined]
    threads = re.search(THREADS, advice)
    first = ast.parse(f"import torch\ntorch.set_num_threads({threads[1]})").body if threads else []
    after = next(
        number
        for number, node in enumerate(tree.body)
        if not isinstance(node, ast.ImportFrom | ast.Import | ast.Expr)
    )
    tree.body[after:after] = first
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def try_once(script: Path, folder: Path) -> bool | None:
    """Run a script before and after its advice and print a line; return whether all is as predicted."""
    before = record(script, folder / script.stem)
    finding = next((each for each in before["findings"] if each["rule"] in ADVISERS), None)
    options = finding["options"] if finding else []
    option = next((each for each in options if re.search("|".join(SETTINGS.values()), each["edit"])), None)
    advice = f"{option['edit']} {option['details']}" if option else ""
    name = script.stem
    if finding is None or option is None:
        print(f"| {name} | {'no such finding' if finding is None else 'not advised'} | | | |", flush=True)
        return None
    changed = follow(script.read_text(encoding="utf-8"), option["location"]["line"], advice)
    advised = folder / f"{name}_advised.py"
    advised.write_text(changed, encoding="utf-8")
    after = record(advised, folder / advised.stem)
    today, then = mean_step_ns(folder / name), mean_step_ns(folder / advised.stem)
    if not today or not then:
        print(f"| {name} | a run did not train | | | |", flush=True)
        return None
    low, high = option["saving"].values()
    said = [each["rule"] for each in after["findings"] if each["rule"] in ACCUSERS]
    inside = low - 0.005 <= then / today <= high + 0.005
    words = [match[0] for match in re.finditer("|".join([*SETTINGS.values(), THREADS]), advice)]
    print(
        f"| {name}: {' '.join(words)} | {low:.2f} to {high:.2f} | {then / today:.2f} | {'yes' if inside else 'no'} | "
        f"{', '.join(said) or 'nothing'} |",
        flush=True,
    )
    return inside and not said


def main() -> int:
    """Run the requested scripts and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scripts", nargs="*", help="names of the default scripts, or paths of others")
    parser.add_argument("--rounds", type=int, default=1, help="how often each script runs (1)")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    arguments = parser.parse_args()
    named = {script.stem: script for script in DEFAULT}
    scripts = [named.get(word) or Path(word).absolute() for word in arguments.scripts] or list(DEFAULT)
    results = []
    print(
        "| script and advice | predicted ratio | measured ratio | in the range | what the next report says of it |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        kept = (arguments.keep or Path(temporary)).absolute()
        for script in scripts:
            for number in range(1, arguments.rounds + 1):
                folder = kept / str(number)
                folder.mkdir(parents=True, exist_ok=True)
                results.append(try_once(script, folder))
    known = [result for result in results if result is not None]
    print(f"\nas predicted, and not reported again: {sum(known)} of {len(known)}")
    return 0 if all(known) else 1


if __name__ == "__main__":
    sys.exit(main())
