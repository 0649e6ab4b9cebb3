"""Items of map-style datasets are checked for the same bytes each time, without effect on the program."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

DATA = """
import random
import numpy as np
from collections import namedtuple
from torch.utils.data import DataLoader
DataLoaderOf = lambda data, **options: DataLoader(data, **{"batch_size": 8, "shuffle": True, **options})
class Data(torch.utils.data.Dataset):
    def __init__(self, make, size=100): self.make, self.size = make, size
    def __len__(self): return self.size
    def __getitem__(self, index): return self.make(index)
def train(loader, epochs=3):
    torch.manual_seed(0)
    for _ in range(epochs):
        for batch in loader: pass
"""


def checks(done: Any) -> dict[str, list[list[int] | None]]:
    """Return what all processes wrote of each item; None for an item of an unknown type."""
    found = defaultdict(list)
    for journal in done.journals:
        for record in journal.of("FACT"):
            key, value = record.name, journal.texts[record.value]
            if key.startswith("item/"):
                found[key].append(None if value == "unknown" else list(map(int, value.split())))
    return dict(found)


def equal_items(found: dict[str, list[list[int] | None]]) -> tuple[int, int]:
    """Return how many items were seen twice or more, and how many of them were the same."""
    again = [seen for seen in found.values() if len(seen) > 1 and None not in seen]
    return len(again), sum(len({row[0] for row in seen if row}) == 1 for seen in again)


@pytest.mark.parametrize(
    "workers",
    ["", "num_workers=2", "num_workers=2, persistent_workers=True"],
    ids=["none", "for each epoch", "persistent"],
)
def test_the_same_items_are_checked_in_all_epochs_and_workers(train, workers: str) -> None:
    done = train(f"""{DATA}
train(DataLoaderOf(Data(lambda index: torch.full((7,), float(index))), {workers}))
""")
    found = checks(done)
    again, equal = equal_items(found)
    assert again == equal >= 9
    assert max(len(seen) for seen in found.values()) == 3
    assert {key.split("/")[1] for key in found} == {"worker" if workers else "loader"}
    rows = [row for seen in found.values() for row in seen if row]
    assert all(row[1] >= 28 and row[3] == 0 for row in rows)
    assert max(row[4] for row in rows) == 99


ITEMS = {
    "a tensor": "torch.full((3, 4), float(index))",
    "a dictionary": "{'x': torch.ones(3) * index, 'y': [index, 'text', b'bytes', None, 2.5]}",
    "a named tuple": "Pair(np.arange(5) + index, np.float32(index))",
    "turned round": "(torch.ones(3, 4).T + index, (np.arange(9) + index)[::-2])",
    "large": "torch.ones(600_000) * index",
    "many": "[torch.ones(1) * index] * 30",
    "numbers": "[index, 1.5] * 400",
    "empty": "(torch.zeros(0, 3), '', [], np.zeros((2, 0)), index)",
    "of a generator of its own": "torch.rand(3, generator=torch.Generator().manual_seed(index))",
    "half precision": "torch.ones(3, dtype=torch.bfloat16, requires_grad=True) * index",
}


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "by __getitems__"])
def test_items_of_all_sorts_are_the_same(train, item: str, batched: bool) -> None:
    method = "def __getitems__(self, indices): return [self.make(index) for index in indices]"
    done = train(f"""{DATA}
Pair = namedtuple("Pair", "x y")
class Mine(Data):
    {method if batched else "pass"}
train(DataLoaderOf(Mine(lambda index: {item}, 60), collate_fn=len))
""")
    again, equal = equal_items(checks(done))
    assert again == equal >= 9


CHANGING = {
    "torch": "torch.full((3,), float(index)).roll(torch.randint(2, ()).item())",
    "Python": "torch.ones(3) * (index if random.random() < 0.5 else index)",
    "gauss": "random.gauss(0, 1)",
    "NumPy": "(np.random.rand(), torch.ones(3) * index)",
}


@pytest.mark.parametrize("item", CHANGING.values(), ids=CHANGING)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_global_random_generator_that_moves_is_noticed(train, item: str, workers: int) -> None:
    done = train(f"""{DATA}
np.random.seed(1)
train(DataLoaderOf(Data(lambda index: {item}), num_workers={workers}, collate_fn=len))
""")
    found = checks(done)
    assert found
    assert all(row[3] == 1 for seen in found.values() for row in seen)
    assert max(map(len, found.values())) <= 3


@pytest.mark.parametrize(
    "change",
    ["self.counts[index] += 1", "self.generator.random(out=self.counts[index : index + 1])"],
    ids=["counted", "by a generator of its own"],
)
def test_items_that_change_are_noticed_and_then_checked_no_more(train, change: str) -> None:
    done = train(f"""{DATA}
class Changing(Data):
    counts = np.zeros(100)
    generator = np.random.default_rng(0)
    def __getitem__(self, index):
        {change}
        return torch.tensor(self.counts[index])
train(DataLoaderOf(Changing(None)), epochs=6)
""")
    again, equal = equal_items(checks(done))
    assert again >= 1
    assert equal < again
    assert again <= 8


UNKNOWN = {
    "an object": "Own()",
    "a subclass of tensors": "torch.ones(3).as_subclass(Sub)",
    "sparse": "torch.ones(3).to_sparse()",
    "nested": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])",
    "on no device": "torch.ones(3, device='meta')",
    "an array of objects": "np.array([[], {}], dtype=object)",
    "a subclass of lists with attributes": "List([1])",
    "deep": "[[[[[[index, 'x']]]]]]",
    "too many": "['x'] * 5000",
    "a set": "{1, 2}",
}


@pytest.mark.parametrize("item", UNKNOWN.values(), ids=UNKNOWN)
def test_of_items_that_hold_something_else_nothing_is_said(train, item: str) -> None:
    done = train(
        f"""{DATA}
class Own:
    def __getattr__(self, name): raise RuntimeError("asked for " + name)
    def __repr__(self): raise RuntimeError("asked")
class Sub(torch.Tensor): pass
class List(list):
    def __init__(self, held):
        super().__init__(held)
        self.more = 1
train(DataLoaderOf(Data(lambda index: {item}), collate_fn=len))
""",
        check=False,  # torch warns of nested tensors
    )
    assert done.returncode == 0, done.stderr
    assert list(checks(done).values()) == [[None]]


NOT_CHECKED = {
    "a stream": "DataLoader(Stream(), 4)",
    "no batches": "DataLoader(list(range(40)), None)",
    "lists of indices": "DataLoader(Whole(lambda index: index), None, sampler=[[1, 2], [3, 4]])",
    "other indices": "DataLoader(Data(len), sampler=Names(), batch_size=2)",
    "no list of items": "DataLoaderOf(Tensors(None), collate_fn=len)",
}


@pytest.mark.parametrize("loader", NOT_CHECKED.values(), ids=NOT_CHECKED)
def test_other_loaders_are_not_checked(train, loader: str) -> None:
    done = train(f"""{DATA}
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(range(30))
class Names(torch.utils.data.Sampler):
    def __init__(self): pass
    def __iter__(self): return iter(["a", "bb", Index(), Index()])
    def __len__(self): return 4
class Index:
    __hash__ = None
    def __len__(self): return 3
    def __eq__(self, other): raise RuntimeError("compared")
class Whole(Data):
    def __getitem__(self, indices): return torch.tensor(indices)
class Tensors(Data):
    def __getitems__(self, indices): return torch.tensor(indices)
train({loader})
""")
    assert checks(done) == {}


def test_no_length_is_asked_of_the_dataset(same) -> None:
    done = same(f"""{DATA}
class Counted(Data):
    def __len__(self):
        print("asked")
        return super().__len__()
train(DataLoader(Counted(lambda index: float(index), 40), batch_size=8, sampler=list(range(30, 40))))
train(DataLoader(Counted(lambda index: float(index), 40), batch_size=8, shuffle=True))
""")
    assert checks(done)


def test_a_length_of_any_size_has_about_twelve_checked_items(train) -> None:
    done = train("""
from perfwrap_recorder.probes.data_loading.unchanged_items import CHOSEN, chosen_below
sizes = [(1 << power, length) for power in range(5, 40) for length in ((1 << power - 1) + 1, 1 << power)]
counts = [sum(index < length for index in chosen_below(size)) for size, length in sizes]
print(min(counts) >= 8, max(counts) <= CHOSEN, len(chosen_below(1)), len(chosen_below(8)))
""")
    assert done.stdout == "True True 1 8\n"


def test_the_place_tells_items_that_are_kept_from_new_ones(train) -> None:
    done = train(f"""{DATA}
kept = torch.rand(100, 9)
train(DataLoaderOf(Data(lambda index: (kept[index], index))))
train(DataLoaderOf(Data(lambda index: (kept[index] * 2, index))))
""")
    found = checks(done)
    for number, is_kept in ((1, True), (2, False)):
        places = [
            {row[2] for row in seen if row}
            for key, seen in found.items()
            if key.startswith(f"item/loader/{number}/")
        ]
        assert all(len(each) == 1 for each in places) == is_kept


def test_items_are_checked_while_detail_is_paused(train) -> None:
    done = train(f"""{DATA}
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
from perfwrap_recorder.journal import paused_detail
pauses = 0
loader = DataLoaderOf(Data(lambda index: torch.ones(2) * index, 8 * 1500))
for epoch in range(2):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        pauses += bool(paused_detail.counting)
assert pauses > 1500, pauses
""")
    again, equal = equal_items(checks(done))
    assert again == equal >= 7
    assert len(done.journal.of("FETCH")) < 1500


def test_each_item_is_checked_a_few_times_and_then_nothing_is_asked(train) -> None:
    done = train(f"""{DATA}
from perfwrap_recorder.probes.data_loading import unchanged_items
loader = DataLoaderOf(Data(float))
train(loader, epochs=20)
iterator = iter(loader)
assert not unchanged_items._watched["loader/1"].chosen
""")
    assert {len(seen) for seen in checks(done).values()} == {5}


def test_the_time_of_all_checks_is_limited(train) -> None:
    done = train(f"""{DATA}
from perfwrap_recorder.probes.data_loading import unchanged_items
unchanged_items.MAX_NS = 1
train(DataLoaderOf(Data(float)))
assert not unchanged_items.fetchers
""")
    assert len(checks(done)) == 0


def test_output_random_numbers_and_life_of_objects_are_as_without_it(same) -> None:
    done = same(f"""{DATA}
import gc, weakref
from torch.overrides import TorchFunctionMode
class Item(list): pass
made = []
class Fresh(Data):
    def __getitem__(self, index):
        item = Item([torch.ones(3) * index, str(index)])
        made.append(weakref.ref(item))
        return item
def collate(items):
    print(type(items).__name__, [type(each).__name__ for each in items], [int(each[0][0]) for each in items])
    return torch.stack([each[0] for each in items])
class Watch(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        print(getattr(function, "__name__", function))
        return function(*arguments, **(options or {{}}))
torch.manual_seed(1); random.seed(1); np.random.seed(1)
gc.disable()
data = Fresh(None, 24)
loader = DataLoader(data, 8, shuffle=True, collate_fn=collate)
for epoch in range(3):
    for batch in loader: print(batch.sum().item(), sum(each() is not None for each in made))
with Watch():
    for batch in loader: pass
print(torch.rand(2), random.random(), np.random.rand(), gc.collect() >= 0)
gone = weakref.ref(data)
del data, loader, batch
print(gone() is None, sum(each() is not None for each in made))
""")
    assert checks(done)


def test_what_is_read_of_memory_stays_within_it(train) -> None:
    train(f"""{DATA}
shrunk = torch.ones(1000)
shrunk.untyped_storage().resize_(8)
from perfwrap_recorder.program import checksums
assert checksums.checksum(torch, shrunk) is None
spread = torch.ones(100, 100)[:, ::7]
assert checksums.checksum(torch, spread) == checksums.checksum(torch, spread)
first = checksums.checksum(torch, torch.arange(9.0).view(3, 3))
assert first[0] != checksums.checksum(torch, torch.arange(9.0))[0]
assert first[0] != checksums.checksum(torch, torch.arange(9.0).view(3, 3).int())[0]
large = torch.zeros(1 << 20)
before = checksums.checksum(torch, large)
large[-1] = 1
assert before[0] != checksums.checksum(torch, large)[0] and before[1] > 4 << 20
""")


def test_indices_that_become_other_things_than_integers_are_left_alone(train, run_bare) -> None:
    """A sampler may yield pairs or iterators after batches of integers, also while detail is paused."""
    program = """
class Index:
    def __init__(self, number): self.number = number
    def __hash__(self): raise SystemExit("the hash is the program's own")
class Data(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, index):
        return torch.ones(2) * (index if type(index) is int else sum(index) if type(index) is list else index.number)
class Batches:
    def __init__(self, make): self.make = make
    def __iter__(self):
        for number in range(1_000): yield [number * 49, number * 7]
        for number in range(500): yield self.make(number)
for make in (lambda n: [[n, 1], [2, 3]], lambda n: map(int, ["1", "2"]), lambda n: [Index(n)], lambda n: (n, n)):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    steps = 0
    for batch in torch.utils.data.DataLoader(Data(), batch_sampler=Batches(make)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        steps += 1
    print(steps, batch)
"""
    assert train(program).stdout == run_bare("import torch\n" + program)
