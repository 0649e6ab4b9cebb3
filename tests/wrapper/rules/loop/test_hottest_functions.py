from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.loop import hottest_functions as rule
from perfwrap.rules.model import Clear
from perfwrap.sources import files

FRAMES = [
    {"name": "<module>", "file": "/home/me/train.py", "line": 90},
    {"name": "merge", "file": "/home/me/bpe.py", "line": 83},
    {"name": "count", "file": "/home/me/bpe.py", "line": 12},
    {"name": "run", "file": "/usr/lib/python3.11/threading.py", "line": 982},
    {"name": "wait", "file": "/usr/lib/python3.11/threading.py", "line": 327},
    {"name": "poll", "file": "/usr/lib/python3.11/multiprocessing/popen_fork.py", "line": 27},
]
MODULE, MERGE, COUNT, RUN, WAIT, POLL = range(6)


def recorded(path: Path, **threads: list[list[int]]) -> Diagnosis:
    """Return the diagnosis of a speedscope file with the samples of some threads."""
    profiles = [
        {
            "type": "sampled",
            "name": f'Thread {number} "{name}"',
            "unit": "seconds",
            "startValue": 0.0,
            "endValue": 0.01 * len(samples),
            "samples": samples,
            "weights": [0.01] * len(samples),
        }
        for number, (name, samples) in enumerate(threads.items(), start=1)
    ]
    schema = "https://www.speedscope.app/file-format-schema.json"
    content = {
        "$schema": schema,
        "shared": {"frames": FRAMES},
        "profiles": profiles,
        "exporter": "py-spy@0.4.2",
    }
    path.write_text(json.dumps(content))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("speedscope", "")
    return diagnose(timeline)


def test_the_hottest_function_of_the_thread_at_work_is_the_verdict(tmp_path: Path) -> None:
    diagnosis = recorded(
        tmp_path / "a.json",
        helper=[[RUN, WAIT]] * 200,
        MainThread=[[MODULE, MERGE]] * 70 + [[MODULE, COUNT]] * 20 + [[MODULE, POLL]] * 10,
    )
    assert diagnosis.verdict.id == "python-bound"
    assert diagnosis.verdict.share == 0.7
    assert "70 % of the 100 samples of MainThread are in merge at bpe.py:83" in diagnosis.verdict.sentence
    (finding,) = diagnosis.findings
    assert finding.location is not None
    assert finding.location.line == 83
    assert any("count at bpe.py:12 20 %" in text for text in finding.evidence)
    assert any("helper 100 %" in text for text in finding.evidence)


def test_a_program_that_waits_says_where(tmp_path: Path) -> None:
    diagnosis = recorded(
        tmp_path / "a.json",
        MainThread=[[MODULE, POLL]] * 80 + [[MODULE, MERGE]] * 20,
        helper=[[RUN, WAIT]] * 100,
    )
    assert (diagnosis.verdict.id, diagnosis.verdict.share) == ("sync-bound", 0.8)
    assert "MainThread waits in 80 % of its 100 samples, mostly in the script at train.py:90" in (
        diagnosis.verdict.sentence
    )


def test_a_few_samples_are_too_few(tmp_path: Path) -> None:
    assert recorded(tmp_path / "a.json", MainThread=[[MODULE, MERGE]] * 5).verdict.id == "unknown"


def test_samples_of_a_training_loop_are_left_to_other_rules(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), Clear)
