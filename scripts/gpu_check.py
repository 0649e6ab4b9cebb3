"""Measure perfwrap on a GPU, and check what is unproven without one. For a machine with a GPU, in under eight minutes.

It needs this checkout and a Python with PyTorch 2.6 or newer, numpy, psutil and pynvml (nvidia-ml-py). The parts:

- compared: whether the time between perfwrap's events is that of torch.profiler for the same phases of the same steps,
  and whether a recorded program, which here profiles itself, waits for the GPU more often than a bare one;
- idle: whether planted idle time of each kind is blamed on its cause, from events and from records of kernels;
- windows: how long steps take after a window of torch.profiler, with a loader that pins memory and without, and what
  records of only the kernels cost;
- inspect: whether a program under `--inspect` computes the same;
- behaviours: whether a program behaves the same: CUDA graphs, compiled steps, streams, memory, errors, own profiler;
- units: whether the monitors distinguish known loads and count their energy;
- ncu: whether `--ncu` leaves a table, if Nsight Compute is installed;
- loops: the cost per step, with and without windows, as scripts/cost/overhead.py measures it.

    python scripts/gpu_check.py                            writes gpu_check.json and gpu_check.md
    python scripts/gpu_check.py loops compared             only these parts; others in the file stay
    python scripts/gpu_check.py --read gpu_check.json      finish the parts that need the reading half of perfwrap

Reading a run needs perfwrap's own dependencies (polars, msgspec). Where they are missing, the recordings travel in the
JSON file, and ``--read`` judges them on a machine that has them. A part for which there is no time left, or that the
machine lacks something for, is listed with the reason. Exit code 1: an answer is not good enough.

Whether the diagnosis is right on a GPU is another question: accuracy/accuracy.py --scripts scripts/gpu/workloads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "wrapper"), str(HERE / "cost"), str(HERE / "gpu")]

import gpu_parts  # noqa: E402
import gpu_report  # noqa: E402
import torch  # noqa: E402
from gpu_parts import PARTS, Given, Skipped  # noqa: E402

MINUTES = 8.0
NO_GPU = 2
"""Exit code if there is nothing to check."""
OUTPUT = Path("gpu_check.json")


def main() -> int:
    """Measure and print; write the figures; return the exit code."""
    arguments = _arguments()
    if arguments.read:
        return _finish(json.loads(arguments.read.read_text()), arguments.read)
    device = arguments.device
    module = getattr(torch, device, None)
    if module is None or not module.is_available():
        print(
            f"gpu_check: PyTorch {torch.__version__} finds no GPU here, so there is nothing to check.\n"
            f"Run it where `python -c 'import torch; print(torch.{device}.is_available())'` prints True.",
            file=sys.stderr,
        )
        return NO_GPU
    os.environ["GPU_CHECK_DEVICE"] = os.environ["OVERHEAD_DEVICE"] = device
    about = {"device": module.get_device_name(0), "torch": str(torch.__version__)}
    result: dict[str, Any] = dict(about)
    if arguments.json.exists():
        result = json.loads(arguments.json.read_text())
        if any(result.get(name) != value for name, value in about.items()):
            print(
                f"{arguments.json} has figures of another GPU or PyTorch; choose another file",
                file=sys.stderr,
            )
            return NO_GPU
    result |= {"python": platform.python_version(), "cuda": torch.version.cuda}
    deadline = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as name:
        for part in arguments.parts or PARTS:
            _run(part, Path(name, part), arguments, deadline, result)
            arguments.json.write_text(json.dumps(result, indent=1, default=vars) + "\n")
    return _finish(result, arguments.json)


def _run(
    part: str, folder: Path, arguments: argparse.Namespace, deadline: float, result: dict[str, Any]
) -> None:
    """Run a part and add its figures to the result, or why there are none."""
    folder.mkdir()
    started = time.monotonic()
    left = deadline - started
    skipped = result.setdefault("skipped", {})
    skipped.pop(part, None)
    try:
        if left < PARTS[part].seconds and not arguments.parts:
            raise Skipped(f"{left:.0f} s were left, and it takes {PARTS[part].seconds:.0f} s")
        given = Given(
            folder, arguments.device, left, arguments.small, arguments.casts, arguments.steps, result
        )
        result[part] = PARTS[part].run(given)
    except Skipped as reason:
        skipped[part] = str(reason)
    except Exception as error:  # noqa: BLE001 - the other parts are worth having
        skipped[part] = f"failed: {type(error).__name__}: {error}"
    result.setdefault("seconds", {})[part] = round(time.monotonic() - started, 1)
    said = f"skipped: {skipped[part]}" if part in skipped else "done"
    print(f"{part}: {said} ({result['seconds'][part]:.0f} s)", file=sys.stderr, flush=True)


def _finish(result: dict[str, Any], path: Path) -> int:
    """Read what can be read here, judge, print and write; return the exit code."""
    gpu_parts.read_recordings(result)
    result["problems"] = gpu_parts.judge(result)
    text = gpu_report.markdown(result)
    print(text)
    path.write_text(json.dumps(result, indent=1, default=vars) + "\n")
    path.with_suffix(".md").write_text(text + "\n")
    return 1 if result["problems"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (all)")
    parser.add_argument("--json", type=Path, default=OUTPUT, help=f"the file of the figures ({OUTPUT})")
    parser.add_argument("--read", type=Path, metavar="JSON", help="only read the recordings in this file")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time for all parts (8)")
    parser.add_argument("--casts", type=int, default=2, help="how often the loops are restarted (2)")
    parser.add_argument(
        "--steps", type=float, nargs="*", default=gpu_parts.STEP_TIMES_MS, help="step times in ms"
    )
    parser.add_argument("--device", default="cuda", help="the device, by PyTorch's name (cuda)")
    parser.add_argument("--small", action="store_true", help="few steps, to try the script itself")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; use {', '.join(PARTS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
