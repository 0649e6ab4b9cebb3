"""Applies every edit of perfwrap to lines of real Python files, and checks what the edits promise.

    python scripts/fixes/fuzz_edits.py --sources DIR... [--files 500] [--part 1/5] [--seed 1] [--edits NAME...]

Of the Python files below the folders (``site-packages`` or bare repositories, too) it takes some at random, two in
three of them from those that have a line for one of the edits, the same number for each edit as far as there are any.
Each edit is applied at some lines that look like its own and at some other lines. A mistake ends the run with exit
code 1. A mistake is: an exception, a result that does not parse, lines changed
that are not the edit's, other line endings, or an edit that finds something to do at its place again and again.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from perfwrap.edits import EDITS, module_of
from perfwrap.edits.files.source_reader import read_source
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.source_tree import Source, parse

MOST_READ = 6000
"""Files that are read to choose from."""
MAX_BYTES = 60_000
"""A larger file takes many seconds, and is of the same kind."""
RANDOM_LINES, OWN_LINES, MOST_EDITS, TIMES = 3, 6, 3, 4
VALUES: dict[str, list[dict[str, int | bool | str]]] = {
    "loader_options": [
        {"num_workers": 4},
        {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
        {"pin_memory": True},
    ],
    "thread_count": [{"threads": 2}],
    "optimizer_options": [{"fused": True}, {"foreach": True}],
    "rare_logging": [{"every": 50}],
    "checkpoint_interval": [{"every": 5}],
    "cached_items": [{"most_items": 1000}],
}
OWN = {
    "loader_options": r"DataLoader\(",
    "thread_count": r"DataLoader\(",
    "optimizer_options": r"(Adam|AdamW|SGD|RMSprop)\(",
    "library_optimizer": r"(Adam|AdamW|SGD|Adagrad)\(",
    "zero_grad_option": r"zero_grad\(",
    "transfer_option": r"\.(to|cuda)\(",
    "evaluation_mode": r"\b(for|while)\b.*:",
    "summed_values": r"\+=.*(item\(\)|float\()",
    "kept_values": r"append\(.*(item\(\)|float\()",
    "last_value": r"= .*(tolist\(\)|item\(\)|numpy\(\)|float\()",
    "rare_logging": r"\b(print|add_scalar|log|info|set_postfix|set_description)\(",
    "debug_calls": r"detect_anomaly",
    "cleanup_calls": r"empty_cache|gc\.collect",
    "frozen_garbage": r"\b(for|while)\b.*:",
    "log_softmax_call": r"softmax|\blog\(",
    "retained_graph": r"retain_graph",
    "summed_backward": r"backward\(",
    "unchecked_distribution": r"(Categorical|Normal|Bernoulli|Beta|Dirichlet)\(",
    "gathered_parts": r"(cat|concat|concatenate|vstack|hstack)\(",
    "mapped_loop": r"\bfor \w+ in range\(",
    "hoisted_tensors": r"= .*torch\.(tensor|ones|zeros|full|eye|arange|linspace|tril|triu)\(",
    "hoisted_calls": r"no_grad\(|inference_mode\(",
    "buffered_tensors": r"torch\.(tensor|ones|zeros|full|eye|arange|linspace)\(",
    "averaged_weights": r"zip\(.*parameters|lerp_|mul_",
    "reused_copy": r"deepcopy\(",
    "background_save": r"torch\.save\(|save_file\(",
    "checkpoint_interval": r"save",
    "repeated_forward": r"\w\(\w",
    "kept_results": r"= (self\.)?\w+\(\w",
    "detached_fakes": r"\b(net)?[dD](is\w*)?\(|critic",
    "frozen_discriminator": r"\b(net)?[dD](is\w*)?\(|critic",
    "frozen_parameters": r"(Adam|AdamW|SGD|RMSprop)\(",
    "accumulated_sync": r"backward\(",
    "sliced_head": r"self\.\w+\(",
    "cached_items": r"DataLoader\(",
}
MOST_CHANGED = 12
"""An edit changes at most so many lines, apart from their indentation."""
ADDED = {"cached_items": 30, "background_save": 45, "kept_results": 90}
"""Lines that an edit adds besides."""


def choose(folders: list[Path], count: int, seed: int, into: Path) -> list[Path]:
    """Return files at random, the same ones for the same seed; those of bare repositories are written to a folder."""
    chance = random.Random(seed)
    files: list[tuple[Path, str]] = []
    for folder in folders:
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            listing = subprocess.run(
                ["git", "-C", folder, "ls-tree", "-r", "--name-only", "-z", "HEAD"],
                capture_output=True,
                check=True,
            )
            names = os.fsdecode(listing.stdout).split("\0")
            files += [(folder, name) for name in names if name.endswith(".py")]
        else:
            files += [(path, "") for path in folder.rglob("*.py") if path.is_file()]
    files.sort()
    chance.shuffle(files)
    wanted = {name: re.compile(pattern) for name, pattern in OWN.items()}
    own: dict[str, list[Path]] = {name: [] for name in OWN}
    others: list[Path] = []
    each = max(count * 2 // 3 // len(own), 1)
    rest = max(count - each * len(own), 0)
    for place, name in files[:MOST_READ]:
        if len(others) == rest and all(len(found) == each for found in own.values()):
            break
        path = _written(place, name, into) if name else place
        if path is None or path.stat().st_size > MAX_BYTES:
            continue
        text = path.read_bytes().decode("latin-1")
        # The edit with the fewest files gets it.
        rarest = min(
            (edit for edit in own if wanted[edit].search(text)), key=lambda edit: len(own[edit]), default=""
        )
        if rarest and len(own[rarest]) < each:
            own[rarest].append(path)
        elif len(others) < rest:
            others.append(path)
    return [path for found in own.values() for path in found] + others


def _written(repository: Path, name: str, into: Path) -> Path | None:
    """Write a file of a bare repository, None if it is absent there."""
    shown = subprocess.run(["git", "-C", repository, "show", f"HEAD:{name}"], capture_output=True)
    if shown.returncode:
        return None
    path = into / f"{len(list(into.iterdir()))}-{Path(name).name}"
    path.write_bytes(shown.stdout)
    return path


def find_lines(text: str, edit: str, chance: random.Random) -> list[int]:
    """Return the lines at which an edit is tried."""
    lines = text.split("\n")
    own = [number for number, line in enumerate(lines, 1) if re.search(OWN[edit], line)]
    chance.shuffle(own)
    return own[:OWN_LINES] + [chance.randint(1, len(lines)) for _ in range(RANDOM_LINES)]


def find_fault(name: str, old: str, edited: Edited, is_python: bool) -> str | None:
    """Return what is wrong with an edited text."""
    if edited.text == old:
        return "nothing changed"
    if not edited.sentence.endswith(".") or "\n" in edited.sentence:
        return f"no sentence: {edited.sentence}"
    try:
        parse(edited.text)
        if is_python:
            ast.parse(edited.text)
    except (Refusal, SyntaxError) as error:
        return f"does not parse: {error}"
    if ("\r" in edited.text) != ("\r" in old) or ("\r\n" in old and old.count("\n") == old.count("\r\n")) != (
        "\r\n" in edited.text and edited.text.count("\n") == edited.text.count("\r\n")
    ):
        return "other line endings"
    before, after = ([line.strip() for line in text.split("\n")] for text in (old, edited.text))
    changed = sum(line[:1] in "+-" for line in difflib.unified_diff(before, after, n=0)) - 2
    return f"{changed} lines changed" if changed > MOST_CHANGED + ADDED.get(name, 0) else None


def repeats(name: str, text: str, target: Target) -> bool:
    """Return whether an edit finds something to do at its place again and again."""
    for _ in range(TIMES):
        try:
            text = module_of(name).edit(parse(text), target).text
        except Refusal:
            return False
    return True


def try_file(path: Path, names: list[str], chance: random.Random, counts: Counter[str]) -> list[str]:
    """Return the faults that the edits make in a file."""
    try:
        text = read_source(path).text
        source: Source = parse(text)
    except Refusal as refusal:
        counts[f"files refused: {re.sub(r'[^ ]*[/0-9][^ ]*', '…', refusal.reason)}"] += 1
        return []
    try:
        ast.parse(text)
        is_python = True
    except (SyntaxError, ValueError):
        is_python = False
    faults = []
    for name in names:
        done = 0
        for line in find_lines(text, name, chance):
            for values in VALUES.get(name, [{}]):
                if done == MOST_EDITS:
                    break
                target = Target(line, values)
                counts[f"{name}: tried"] += 1
                try:
                    edited = module_of(name).edit(source, target)
                    fault = find_fault(name, text, edited, is_python)
                    if fault is None and repeats(name, edited.text, target):
                        fault = "is never done"
                    counts[f"{name}: edited"] += 1
                    done += 1
                except Refusal as refusal:
                    fault = None if refusal.reason.endswith(".") else f"no sentence: {refusal.reason}"
                except Exception:  # noqa: BLE001 - the report has it
                    fault = traceback.format_exc()
                if fault is not None:
                    faults.append(f"{path}:{line} {name} {values}: {fault}")
    return faults


def main() -> int:
    """Run the edits and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=Path, nargs="+", required=True)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--part", default="1/1", help="which of several runs this is, e.g. 2/5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--edits", nargs="+", choices=EDITS, default=list(EDITS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    part, parts = map(int, options.part.split("/"))
    counts: Counter[str] = Counter()
    faults = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = choose(options.sources, options.files, options.seed, Path(folder))[part - 1 :: parts]
        for path in files:
            found = try_file(path, options.edits, random.Random(f"{options.seed} {path.name}"), counts)
            faults += found
            for fault in found:
                print(fault, flush=True)
    print(f"{len(files)} files, {time.monotonic() - began:.0f} s, {len(faults)} faults")
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
