"""Calls that do more than is used of them are recognised by the text of their line."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.measures.loop.slow_calls import drops_second_result, shuffles_to_draw


@pytest.mark.parametrize(
    ("line", "drops"),
    [
        ("x, _ = self.attention(x, x, x)", True),
        ("x, _weights = self.attention(x, x, x, attn_mask=mask)", True),
        ("x = x + self.attention(x, x, x)[0]", True),
        ("x, _ = self.attention(x, x, x, need_weights=False)", False),
        ("x, _ = self.attention(x, x, x, **options)", False),
        ("x, weights = self.attention(x, x, x)", False),
        ("x = self.attention(x, x, x)", False),
        ("x = self.attention(x, x, x)[1]", False),
    ],
)
def test_a_second_result_that_nothing_uses_is_recognised(tmp_path: Path, line: str, drops: bool) -> None:
    (tmp_path / "train.py").write_text(line + "\n")
    assert drops_second_result({"cwd": str(tmp_path)}, "train.py", 1, "need_weights") == drops


@pytest.mark.parametrize(
    ("line", "shuffles"),
    [
        ("at = np.random.choice(size, size=64, replace=False)", True),
        ("at = numpy.random.choice(size, 64, replace=False)", True),
        ("at = np.random.choice(size, size=64)", False),
        ("at = rng.choice(size, size=64, replace=False)", False),
        ("at = np.random.choice(size, size=64, replace=again)", False),
    ],
)
def test_a_draw_that_shuffles_everything_is_recognised(tmp_path: Path, line: str, shuffles: bool) -> None:
    (tmp_path / "train.py").write_text(line + "\n")
    assert shuffles_to_draw({"cwd": str(tmp_path)}, "train.py", 1) == shuffles
