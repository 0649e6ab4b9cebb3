"""Every file that once broke a reader, and small ones of each kind, are handed to the reader again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from hostile_targets import TARGETS  # noqa: E402

SAMPLES = sorted((TESTS / "samples/hostile").iterdir())


def target_of(sample: Path) -> str:
    """Return the target whose name the sample's begins with."""
    return max((name for name in TARGETS if sample.name.startswith(f"{name}-")), key=len)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_hostile_file_costs_a_note_or_a_refusal(sample: Path, tmp_path: Path) -> None:
    TARGETS[target_of(sample)](sample.read_bytes(), tmp_path)


def test_every_reader_has_its_samples() -> None:
    assert set(map(target_of, SAMPLES)) == set(TARGETS)
