from __future__ import annotations

import subprocess
import sys

RARE = ("kineto", "nsys", "tables", "gpu_memory.memory_snapshot")


def test_a_report_begins_without_the_readers_of_files_that_most_runs_do_not_hold() -> None:
    code = "import sys, perfwrap.analysis.run_reader; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "perfwrap.sources.journals.run_journals" in loaded
    assert not [
        name for name in loaded if name.startswith(tuple(f"perfwrap.sources.{rare}" for rare in RARE))
    ]
