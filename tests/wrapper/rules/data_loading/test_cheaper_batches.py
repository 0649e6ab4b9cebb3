from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.worker_need import Step
from perfwrap.measures.loop.library_calls import LibraryCall
from perfwrap.rules.data_loading import _batch_time, _fixes


@pytest.mark.parametrize(("package", "is_told"), [("pandas", True), ("PIL", False)])
def test_lookups_in_pandas_are_to_be_made_once(
    monkeypatch: pytest.MonkeyPatch, package: str, is_told: bool
) -> None:
    library = LibraryCall(package, "DataFrame._ixs", 90)
    cost = _batch_time.Cost("Data.__getitem__ (data.py:22)", 0.9, Line("data.py", 22), library, 100)
    monkeypatch.setattr(_batch_time, "main_part", lambda *_: cost)
    monkeypatch.setattr(_fixes, "_without", lambda *_: 0.2)
    anything: Any = SimpleNamespace()
    step: Step = anything
    (option,) = _fixes.cheaper(anything, anything, anything, step)
    assert "Data.__getitem__ (data.py:22)" in option.edit
    assert ("pandas" in option.details) == is_told
    # Three quarters of what nine tenths of the samples take are certain.
    assert option.saving == pytest.approx((0.2, 1 - 0.75 * 0.9 * 0.8 if is_told else 1.0))
