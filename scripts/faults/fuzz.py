"""Feeds damaged and hostile files to all readers of perfwrap, guided by code coverage.

    pip install atheris
    python scripts/faults/fuzz.py [TARGET...] [--seconds 60] [--corpus DIR]

A file may only cause a PerfwrapError or a note in the timeline. A traceback, a minute without an answer or 2 GiB of
memory end the run with exit code 1 and leave the file in DIR as ``<target>-crash-*`` or similar. Minimise such a file
and add it to ``tests/samples/hostile`` with the target's name as prefix; the tests read all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SEEDS = Path(__file__).resolve().parents[2] / "tests/samples/hostile"
MEMORY_MIB, ANSWER_SECONDS = 2048, 60
FOLLOWED = [
    *(
        "perfwrap.sources",
        "perfwrap.timeline",
        "perfwrap.comparison",
        "perfwrap.diagnosis.configuration",
        "perfwrap.redaction",
    ),
    *(
        "perfwrap.run_folder",
        "perfwrap.manifest_shape",
        "perfwrap.live",
        "perfwrap.analysis.run_names",
        "perfwrap.commands.compared_runs",
    ),
]
"""Modules whose branches guide the search."""
WORDS = {
    "kineto": (
        '"traceEvents":[',
        '"ph":"X"',
        '"ts":',
        '"dur":',
        '"args":{',
        '"baseTimeNanoseconds":',
        "1e400",
        "NaN",
    ),
    "speedscope": (
        '"profiles":[',
        '"type":"evented"',
        '"shared":{"frames":[',
        '"samples":',
        '"weights":',
        "-1",
        "1e308",
    ),
    "manifest": (
        '"start":',
        '"end":',
        '"clock":',
        '"exit":',
        '"oom_kill":',
        '"imported":',
        "null",
        "[]",
        "{}",
        "1e400",
    ),
}
"""Typical words in the files of a target; libFuzzer inserts them."""


def main() -> int:
    """Run each target in a process of its own; return 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60, help="duration for each target")
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "perfwrap-fuzz")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sys.path.insert(0, str(SEEDS.parent.parent))
    if asked.alone:
        _fuzz(asked.targets[0], asked.seconds, asked.corpus)
    from hostile_targets import TARGETS

    failed = [name for name in asked.targets or TARGETS if _run(name, asked.seconds, asked.corpus)]
    print(
        f"{'failed: ' + ', '.join(failed) if failed else 'nothing failed'}; the files are in {asked.corpus}"
    )
    return 1 if failed else 0


def _run(name: str, seconds: int, corpus: Path) -> int:
    """Try one target and return the exit code of its process."""
    words = [sys.executable, __file__, name, "--alone", "--seconds", str(seconds), "--corpus", str(corpus)]
    return subprocess.run(words, check=False).returncode


def _fuzz(name: str, seconds: int, corpus: Path) -> None:
    """Try one target in this process, which ends with it."""
    import atheris
    import perfwrap.rules  # noqa: F401 (instrumenting every rule would take most of the time)

    with atheris.instrument_imports(include=FOLLOWED):
        from hostile_targets import TARGETS
    read = TARGETS[name]
    own = corpus / name
    own.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS.glob(f"{name}-*"):
        (own / seed.name).write_bytes(seed.read_bytes())
    words = corpus / f"{name}.words"
    words.write_text("".join(f"{json.dumps(word)}\n" for word in WORDS.get(name, ("null",))))
    # In memory if possible: a file is written for each try.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 # nosec B108 # the folder below is random
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={ANSWER_SECONDS}"]
        places = [f"-artifact_prefix={corpus}/{name}-", f"-dict={words}", "-max_len=65536", str(own)]
        atheris.Setup([sys.argv[0], *limits, *places], lambda data: read(data, Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
