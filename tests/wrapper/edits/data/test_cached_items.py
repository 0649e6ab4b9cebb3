from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "cached_items"
PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    classes = ["a"]

    def __len__(self):
        return 4

    def __getitem__(self, index):
        made.append(index)
        return torch.tensor([index])


made = []
loader = DataLoader(Data(), batch_size=2, shuffle=True)  # here
"""


def test_the_data_set_is_wrapped(apply: Callable[..., str]) -> None:
    changed = apply(NAME, PROGRAM, most_items=3)
    assert "-loader = DataLoader(Data(), batch_size=2, shuffle=True)  # here" in changed
    assert "+loader = DataLoader(CachedItems(Data(), 3), batch_size=2, shuffle=True)  # here" in changed
    assert changed.count("\n-") + changed.startswith("-") == 1
    assert "+class CachedItems:" in changed


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_the_same_and_items_are_made_once(workers: int) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = PROGRAM.replace("batch_size=2", f"batch_size=2, num_workers={workers}")
    found = edit(NAME, program, Target(18, {"most_items": 3}))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        names: dict[str, object] = {}
        exec(text, names)
        torch.manual_seed(0)
        results.append([batch.tolist() for _ in range(3) for batch in names["loader"]])
        assert names["loader"].dataset.classes == ["a"] and len(names["loader"]) == 2
    assert results[0] == results[1]
    if workers == 0:
        assert len(names["made"]) == 4 + 2  # the fourth item does not fit


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("made.append(index)", "random.random()", "is random"),
        ("class Data(Dataset)", "class Data(torch.utils.data.IterableDataset)", "IterableDataset"),
        ("batch_size=2", "collate_fn=f", "may change the items"),
        ("DataLoader(Data(), batch_size=2, shuffle=True)", "DataLoader(**options)", "no data set of its own"),
        ("batch_size=2, shuffle=True)  # here", "batch_size=None)  # here", "makes no batches"),
        ("# here", "# here\nloader.dataset.level = 2", "loader.dataset.level is set"),
    ],
)
def test_what_may_change_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new), most_items=3)
