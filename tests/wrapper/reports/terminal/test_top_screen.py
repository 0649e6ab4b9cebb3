from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.model import Verdict
from perfwrap.live.devices import GpuNow, ProcessNow
from perfwrap.live.run_so_far import LineNow, RunSoFar
from perfwrap.live.state import State
from perfwrap.live.view import Progress, Scene, View
from perfwrap.measures.account.lines import Line
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.terminal.top_screen import draw, sparkline

GPU = Gpu(1, "NVIDIA H200 (gpu/0)", 0.42, 12e9, 141e9, 310.0, 0.2, ("power_cap",), activity={"sm": 0.31})


def scene(**changes: Any) -> Scene:
    view = View(
        progress=Progress(12_345, True, 3, 120, 500),
        recent_steps=1200,
        steady_steps=1190,
        median_ns=12_345_678.0,
        p99_ns=40e6,
        samples_per_s=2600.0,
        trend=tuple(float(10 + number % 7) for number in range(240)),
        account={"data": 450, "forward": 200, "backward": 250, "optimizer": 60, "python": 40},
        run_so_far=RunSoFar(
            {"launch": 1, "imports": 19, "setup": 20, "steady loop": 40, "since then": 20}, 100
        ),
        lines=(
            LineNow(Line("/w/train.py", 31, "main"), None, "data", 0.45),
            LineNow(Line("/w/net/model.py", 7, "forward"), None, "forward", 0.2),
            LineNow(Line("/w/train.py", 40, "main"), 44, "python", 0.04),
            LineNow(Line("/w/train.py", 50, "main"), None, "sync", 0.004),
        ),
        trainers=tuple((f"rank {rank}", 100, 12e6 + rank) for rank in range(8)),
        gpus=(GpuNow(GPU, 61.0),) * 8,
        processes=tuple(ProcessNow(100 + n, f"rank {n}", n < 8, 1.02, 2.1e9) for n in range(40)),
        problems=("gpu: one thing", "process 7: another thing " * 9, "a third"),
    )
    run = {"command": ["/usr/bin/python", "train.py"], "cwd": "/w"}
    known: dict[str, Any] = {"run": run, "state": State("running")}
    verdict = Verdict("data-bound", 0.45, "Data-bound: 45 % is spent waiting. " * 4, "measured")
    return Scene(**{**known, "elapsed_ns": 125 * 10**9, "view": view, "verdict": verdict, **changes})


def drawn(what: Scene, height: int, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    page = Page(stream, width)
    draw(what, Path("/tmp/runs/one"), page, height, "q quits")
    page.show()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("height", [8, 12, 24, 40, 100])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_full_scene_fits_every_screen(width: int, height: int) -> None:
    lines = drawn(scene(), height, width)
    assert len(lines) <= height
    assert "q quits" in lines[-1]
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("height", [12, 24])
def test_what_hangs_is_first_and_says_where_the_stacks_are(height: int) -> None:
    reported = "no step has ended for 62 s: rank 1 is missing, it is at train.py:15; stacks: stalls/a-1.json"
    lines = drawn(scene(stall=reported), height)
    assert len(lines) <= height
    text = " ".join(" ".join(lines[2:6]).split())
    assert f"Stalled: N{reported[1:]}." in text
    assert "q quits" in lines[-1]


def test_a_common_screen_shows_something_of_everything() -> None:
    text = "\n".join(drawn(scene(), 24))
    for words in (
        "python train.py",
        "running for 2 min 5 s",
        "Last 1,200 steps: Data-bound: 45 %",
        "about 12,345 so far, epoch 3, batch 120 of 500",
        "median 12.3 ms",
        "data         45.0 %",
        "Run    launch 1 %, imports 19 %, setup 20 %, steady loop 40 %, since then 20 %",
        "data           45 %  train.py:31  main",
        "42 % busy, SMs 31 %, 11 GiB of 131 GiB, throttled: power_cap",
        "rank 0",
        "12 ms/step",
        "gpu: one thing",
        "/tmp/runs/one   q quits",
    ):
        assert words in text
    assert "more GPUs" in text
    assert "more processes" in text


def test_lines_are_named_from_the_folder_of_the_command_and_small_ones_are_not() -> None:
    text = "\n".join(drawn(scene(), 100))
    assert "forward        20 %  net/model.py:7  forward" in text
    assert "python        4.0 %  train.py:40 to 44  main" in text
    assert "train.py:50" not in text


def test_what_is_left_out_is_counted() -> None:
    lines = drawn(scene(), 24)
    shown = sum("cores" in line for line in lines)
    left = next(int(line.split()[1]) for line in lines if "more processes" in line)
    assert shown + left == 40


def test_a_page_without_an_end_shows_all() -> None:
    lines = drawn(scene(), 10_000)
    assert sum("cores" in line for line in lines) == 40
    assert not any(" more" in line for line in lines)


@pytest.mark.parametrize(
    ("state", "run", "words"),
    [
        (State("starting"), {}, "nothing was recorded yet"),
        (State("quiet", 61 * 10**9), {}, "nothing was recorded for 61 s"),
        (State("lost"), {}, "no end was recorded"),
        (State("deleted"), {}, "The run folder was deleted"),
        (State("ended"), {"exit": {"code": 3}}, "ended after 2 min 5 s: exit code 3"),
        (State("ended"), {"exit": {"signal": 9}}, "killed by signal 9"),
    ],
)
def test_the_state_of_the_run_is_said_in_words(state: State, run: dict[str, Any], words: str) -> None:
    assert words in drawn(scene(state=state, run={"command": ["x"], **run}), 24)[1]


def test_a_run_without_anything_to_see_is_drawn_too() -> None:
    lines = drawn(scene(view=View(), verdict=None), 24)
    assert "No verdict yet" in "\n".join(lines)


def test_where_unicode_is_missing_all_is_ascii() -> None:
    assert "\n".join(drawn(scene(), 24, encoding="ascii")).isascii()


def test_a_hostile_command_cannot_steer_the_terminal() -> None:
    run = {"command": ["python", "\x1b[2J\x07evil\n.py"]}
    assert "\x1b" not in "\n".join(drawn(scene(run=run), 24))


def test_the_trend_is_drawn_from_zero_and_one_long_step_does_not_flatten_it() -> None:
    assert sparkline([1.0, 0.5, 1.0], 10, False) == "█▅█"
    assert sparkline([10.0] * 9 + [1000.0], 10, False) == "▃" * 9 + "█"
    assert sparkline([5.0] * 1000, 40, True) == "#" * 40
    assert sparkline([0.0, 0.0], 10, False) == "▁▁"
