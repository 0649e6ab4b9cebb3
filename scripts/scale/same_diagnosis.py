"""Compare the diagnoses of two versions of perfwrap on the same recordings, for changes that must not change any.

    git worktree add /tmp/before main
    python scripts/scale/same_diagnosis.py /tmp/before [RECORDING...]

Without recordings, those below PERFWRAP_SHARED_DATA (default: ``../shared/data`` next to the repository) and the
samples of the tests are read. Each version runs in a separate process. Prints the paths of the values of diagnosis.json
that differ; exit code 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
BESIDE = REPOSITORY.parent / "shared" / "data"
MAX_SHOWN = 10

DIAGNOSE = """
import json, sys
from pathlib import Path
from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports.json import document
from perfwrap.sources import files
print(sys.modules["perfwrap"].__file__, file=sys.stderr)
found = {}
for name in sys.argv[1:]:
    timeline, read = files.read([Path(name)], {"command": ["perfwrap", "import", name]})
    found[name] = [document(diagnose(timeline)), [each.problem for each in read]]
print(json.dumps(found))
"""


def diagnoses(version: Path, recordings: list[Path]) -> dict[str, Any]:
    """Return the documents of a version of perfwrap by recording."""
    words = [sys.executable, "-c", DIAGNOSE, *map(str, recordings)]
    run = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": str(version / "wrapper")},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of values that differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from differences(before.get(key), after.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from differences(left, right, f"{path}/{number}")
    elif before != after:
        yield f"{path}: {str(before)[:100]} | {str(after)[:100]}"


def main() -> int:
    """Compare, and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("recordings", nargs="*", type=Path)
    options = parser.parse_args()
    shared = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
    places = options.recordings or [shared, REPOSITORY / "tests" / "samples"]
    found = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    recordings = sorted(path.resolve() for path in found if path.is_file() and path.suffix != ".py")
    before, after = (diagnoses(version.resolve(), recordings) for version in (options.before, REPOSITORY))
    differ = 0
    for name in before:
        shown = sorted(differences(before[name], after[name]))
        differ += bool(shown)
        if shown:
            print("\n    ".join([name, *shown[:MAX_SHOWN]]))
    print(f"{len(before)} recordings, {differ} with another diagnosis")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
