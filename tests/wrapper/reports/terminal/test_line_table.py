from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from perfwrap.diagnosis.model import Diagnosis, LineAccount, LineCost
from perfwrap.measures.account.lines import Line
from perfwrap.reports.terminal.line_table import LINES, draw_lines
from perfwrap.reports.terminal.page import Page

MS = 1_000_000


def cost(file: str, line: int, share: float, part: str = "forward", **more: object) -> LineCost:
    parts = dict.fromkeys(("forward", "backward", "optimizer", "python", "data"), 0.0)
    parts[part] = share * 10 * MS
    return LineCost(Line(file, line, "main"), parts, **more)  # type: ignore[arg-type]


def account(*costs: LineCost) -> LineAccount:
    return LineAccount(10.0 * MS, 9.5 * MS, costs, (), {})


def draw(lines: LineAccount, width: int = 80, encoding: str = "utf-8") -> list[str]:
    page = Page(io.TextIOWrapper(io.BytesIO(), encoding=encoding), width)
    draw_lines(lines, {"cwd": "/nowhere"}, page)
    return page.text().splitlines()


@pytest.fixture
def lines(script: Path) -> LineAccount:
    return account(
        cost(str(script), 7, 0.6, operations=31, module="encoder.*.mlp", shape="float32[8, 64]"),
        cost(str(script), 8, 0.2, "backward", operations=1, shape="bfloat16[8]"),
        cost(str(script), 9, 0.1, "optimizer", operations=2, shape="float32[]"),
        cost(str(script), 11, 0.05, "python"),
        cost("", 0, 0.03, operations=4),
        cost(str(script), 6, 0.001),
    )


def test_each_line_has_its_share_bar_place_and_source(lines: LineAccount) -> None:
    assert draw(lines) == [
        "One step, line by line: 9.5 ms, forward and backward of each line together",
        "   60.0 %  ███████▎     train.py:7  loss = loss_function(model(images), labels)",
        "          encoder.*.mlp · 31 operations · [8, 64]",
        "   20.0 %  ██▍          train.py:8  loss.backward()",
        "          1 operation · bfloat16[8] · 100 % backward",
        "   10.0 %  █▎           train.py:9  optimizer.step()",
        "          2 operations · 100 % optimizer",
        "    5.0 %  ▋            train.py:11 history.append(max(row))",
        "          100 % python",
        "    3.0 %  ▍            no line",
        "          4 operations",
        "    2.0 %               all other lines",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(lines: LineAccount, width: int) -> None:
    drawn = draw(lines, width)
    assert max(map(len, drawn)) <= width
    assert any("train.py:7" in line for line in drawn)


def test_a_terminal_without_unicode_gets_ascii(lines: LineAccount) -> None:
    assert "\n".join(draw(lines, encoding="ascii")).isascii()


def test_of_a_file_that_cannot_be_read_the_function_is_named() -> None:
    drawn = draw(account(cost("/nowhere/net.py", 3, 0.9), cost("/nowhere/net.py", 4000, 0.1)))
    assert drawn[1].split()[-2:] == ["net.py:3", "main"]
    assert drawn[2].split()[-2:] == ["net.py:4000", "main"]


def test_a_file_that_became_shorter_has_no_such_line(script: Path) -> None:
    assert draw(account(cost(str(script), 99, 1.0)))[1].endswith("train.py:99 main")


def test_names_of_files_may_be_long_and_odd(tmp_path: Path) -> None:
    drawn = draw(account(cost(f"{tmp_path}/{'a' * 90}\x1b[31m.py", 5, 1.0)), 40)
    assert max(map(len, drawn)) <= 40
    assert "\x1b" not in "".join(drawn)


def test_only_the_costliest_lines_are_shown() -> None:
    drawn = draw(account(*(cost("/nowhere/a.py", number, 0.04) for number in range(1, 21))))
    assert sum("a.py" in line for line in drawn) == LINES
    assert drawn[-1].split() == ["60.0", "%", "all", "other", "lines"]


def test_a_step_without_operations_has_no_lines() -> None:
    assert draw(account())[1:] == ["  100.0 %               all other lines"]


def test_the_report_of_a_run_has_the_table(
    diagnosis: Diagnosis, drawn: Callable[..., str], lines: LineAccount
) -> None:
    assert "line by line" in drawn(replace(diagnosis, line_account=lines))
    assert "line by line" not in drawn(diagnosis)
