"""The manifest says what was run and how it ended; its first version survives whatever follows."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any


def manifest_of(prefix: list[str]) -> Any:
    return json.loads((Path(prefix[prefix.index("--out") + 1]) / "run.json").read_text())


def test_the_manifest_of_a_finished_run_is_complete(wrap: Any, tmp_path: Path) -> None:
    prefix = wrap("--no-monitors", "--no-report", "--rate", "5", "--budget", "8", "--nvtx")
    command = ["sh", "-c", "exit 4", "\udcff"]
    subprocess.run(prefix + command, cwd=tmp_path, capture_output=True)
    manifest = manifest_of(prefix)
    assert manifest["format"] == 1
    assert manifest["command"] == command
    assert manifest["cwd"] == str(tmp_path)
    assert manifest["exit"] == {"code": 4}
    assert manifest["warnings"] == []
    assert manifest["clock"] == [manifest["start"], manifest["end"]]
    assert manifest["start"]["monotonic_ns"] < manifest["end"]["monotonic_ns"]
    assert manifest["start"]["wall_ns"] < manifest["end"]["wall_ns"]
    assert manifest["options"] == {
        "out": prefix[prefix.index("--out") + 1],
        "name": "",
        "tags": [],
        "run_id": "",
        "nvtx": True,
        "monitors": False,
        "rate_hz": 5.0,
        "report": False,
        "live": False,
        "budget_bytes": 8 << 20,
        "max_overhead": 0.005,
        "sample_hz": 0.0,
        "py_spy": "",
        "py_spy_hz": 20.0,
        "py_spy_native": False,
        "light_sampling": False,
        "window": "auto",
        "nsys": None,
        "ncu": None,
        "ncu_kernels": [],
        "window_detail": [],
        "window_ranks": "0",
        "stall_after_s": 60.0,
        "kill_on_stall": False,
        "kill_grace_s": 30.0,
        "metrics_port": 0,
        "metrics_address": "127.0.0.1",
        "metrics_token_file": "",
        "trial": {
            "changes": [],
            "steps": 0,
            "warm_up": "auto",
            "precision": 0.02,
            "writes": False,
            "values_seed": None,
            "perturbation": 0,
            "seconds": 0.0,
        },
        "inspect": False,
        "overlay": [],
    }
    assert set(manifest["versions"]) == {"perfwrap", "launcher_python"}
    assert manifest["host"]["cores_usable"] >= 1


def test_a_signal_is_distinguished_from_an_exit_code(wrap: Any) -> None:
    prefix = wrap()
    subprocess.run([*prefix, "sh", "-c", "kill -TERM $$"], capture_output=True)
    assert manifest_of(prefix)["exit"] == {"signal": signal.SIGTERM}


def test_a_killed_launcher_leaves_the_first_manifest(wrap: Any, counter: Any, start: Any) -> None:
    prefix = wrap()
    process = start(prefix + counter.command)
    counter.wait_until_ready()
    process.kill()
    process.wait()
    manifest = manifest_of(prefix)
    assert manifest["command"] == counter.command
    assert manifest["end"] is None
    assert manifest["exit"] is None


def test_the_run_folder_is_the_users_alone(wrap: Any) -> None:
    prefix = wrap()
    subprocess.run([*prefix, "true"], capture_output=True)
    assert Path(prefix[prefix.index("--out") + 1]).stat().st_mode & 0o777 == 0o700
