"""Thousands of loaders and iterators at a time cost no more each than the first ones, and are let go."""

from __future__ import annotations

MANY = """
from torch.utils.data import DataLoader, Subset
from perfwrap_recorder.probes.data_loading import data_loader
data, calls = list(range(10)), [0]
def count(frame, event, function):
    calls[0] += 1
def cost(make):
    before = calls[0]
    sys.setprofile(count)
    made = [make() for _ in range(1000)]
    sys.setprofile(None)
    return calls[0] - before, made
def sizes():
    tables = data_loader._loaders, data_loader._iterators, data_loader._freed, data_loader._names, data_loader._fresh
    return [len(table) for table in tables]
loaders, iterators = [], []
for make, kept in ((lambda: DataLoader(Subset(data, [0, 1])), loaders), (lambda: iter(loaders[0]), iterators)):
    costs = []
    for _ in range(10):
        found, made = cost(make)
        costs.append(found)
        kept.append(made) if kept is iterators else kept.extend(made)
    assert costs[9] <= 1.2 * costs[1], costs
    assert max(sizes()) <= data_loader.KEPT, sizes()
assert next(iterators[-1][-1]) == 0
del make, made, kept, loaders[:], iterators[:]
assert sizes()[:2] == [0, 0], sizes()
assert next(iter(DataLoader(data))) == 0
"""


def test_the_ten_thousandth_loader_and_iterator_cost_what_the_second_thousand_did(train) -> None:
    journal = train(MANY).journal
    assert journal.facts["loader/200/dataset_len"] == "2"
    assert "loader/201/dataset_len" not in journal.facts
    assert [found.label for found in journal.of("DATA")] == ["loader/more", "loader/more"]


def test_a_name_is_given_on_when_its_loader_is_gone_or_was_used_or_is_over_the_same_data(train) -> None:
    facts = train("""
from torch.utils.data import DataLoader
one, two = list(range(4)), list(range(4))
def make(data): return DataLoader(data)
kept = []
for used in (False, True, None, None):
    pair = [make(data) for data in (one, two)]
    if used: list(pair[0]), list(pair[1])
    if used is None: kept += pair
""").journal.facts
    assert sorted(key for key in facts if key.endswith("dataset_len")) == [
        "loader/1/dataset_len",
        "loader/2/dataset_len",
    ]
    assert facts["loader/1/made_again"] == facts["loader/2/made_again"] == "True"
