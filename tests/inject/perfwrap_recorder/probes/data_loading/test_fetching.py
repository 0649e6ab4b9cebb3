"""Batches are timed where they are made, and the user's loaders, datasets and functions stay what they are."""

from __future__ import annotations

import sys

import pytest

DATA = """
class Data(torch.utils.data.Dataset):
    def __init__(self, size=12, work=0): self.size, self.work = size, work
    def __len__(self): return self.size
    def __getitem__(self, index):
        sum(range(self.work))
        return torch.full((5,), float(index))
class Collate:
    def __init__(self, work=0): self.work = work
    def __call__(self, samples):
        sum(range(self.work))
        return torch.stack(samples)
DataLoader = torch.utils.data.DataLoader
"""


@pytest.fixture
def bare(run_bare):
    """Run a program without the recorder and return its output."""
    return lambda program: run_bare("import torch\ntorch.set_num_threads(1)\n" + program)


def makers(done) -> list:
    """Return the journals of the processes that made batches."""
    return [journal for journal in done.journals if journal.of("FETCH")]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("heavy", ["GETITEM", "COLLATE"])
def test_the_split_names_what_takes_the_time(train, workers: int, heavy: str) -> None:
    work = {"GETITEM": (200_000, 0), "COLLATE": (0, 800_000)}[heavy]
    done = train(f"""{DATA}
for batch in DataLoader(Data(work={work[0]}), 4, num_workers={workers}, collate_fn=Collate({work[1]})): pass
""")
    spent = {"GETITEM": 0, "COLLATE": 0}
    for journal in makers(done):
        for span in journal.of("GETITEM", "COLLATE"):
            spent[span.kind] += span.duration
    assert spent.pop(heavy) > 2 * max(spent.values())
    assert len(makers(done)) == max(1, workers)


def test_without_workers_a_batch_is_made_inside_the_wait_for_it(train) -> None:
    journal = train(f"{DATA}\nfor batch in DataLoader(Data(10), 4): pass").journal
    waits, fetches = journal.of("DATA"), journal.of("FETCH")
    samples, collations = journal.of("GETITEM"), journal.of("COLLATE")
    assert [len(found) for found in (waits, fetches, samples, collations)] == [3] * 4
    for wait, fetch, getitem, collate in zip(waits, fetches, samples, collations, strict=True):
        assert wait.start <= fetch.start <= getitem.start <= collate.start
        assert getitem.start + getitem.duration <= collate.start
        assert collate.start + collate.duration <= fetch.start + fetch.duration <= wait.start + wait.duration
    assert [fetch.value for fetch in fetches] == [getitem.value for getitem in samples] == [4, 4, 2]
    assert [collate.value for collate in collations] == [80, 80, 40]


def test_names_contain_the_lines_of_the_users_dataset_and_collate_function(train) -> None:
    done = train(f"""{DATA}
import functools
def mine(samples, factor): return torch.stack(samples) * factor  # MINE
subset = torch.utils.data.Subset(Data(), [1, 2])
for batch in DataLoader(subset, 2, collate_fn=functools.partial(mine, factor=2)): pass
for batch in DataLoader([1.0, 2.0], 2): pass
""")
    program = (done.run_dir / "program.py").read_text().splitlines()
    line = {text.split("#")[-1].strip(): number for number, text in enumerate(program, 1)}
    getitem, plain = done.journal.of("GETITEM")
    assert (getitem.label, getitem.line) == (
        "__main__.Data.__getitem__",
        ("program.py", program.index("    def __getitem__(self, index):") + 1, "Data.__getitem__"),
    )
    mine, default = done.journal.of("COLLATE")
    assert (mine.label, mine.line) == ("__main__.mine", ("program.py", line["MINE"], "mine"))
    assert (default.label, default.line) == ("torch.utils.data._utils.collate.default_collate", None)
    assert (plain.label, plain.line) == ("builtins.list.__getitem__", None)
    assert [span.label for span in done.journal.of("FETCH")] == ["__main__.Data", "builtins.list"]


def test_all_sorts_of_datasets_and_samplers_are_counted(train) -> None:
    done = train(f"""{DATA}
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(range(7))
class Batched(Data):
    def __getitems__(self, indices):
        assert type(indices) is list
        return [float(index) for index in indices]
class Backwards(torch.utils.data.Sampler):
    def __init__(self): pass
    def __iter__(self): return iter(range(3, -1, -1))
    def __len__(self): return 4
batch_sampler = [[0, 1], [2], [3, 4, 5]]
seen = [
    list(DataLoader(Stream(), 3)),
    list(DataLoader(Stream(), 3, drop_last=True)),
    list(DataLoader(Stream(), None)),
    list(DataLoader(Batched(4), 2)),
    list(DataLoader(Data(4), 3, sampler=Backwards())),
    list(DataLoader(Data(), batch_sampler=batch_sampler)),
    list(DataLoader(Data(2), None)),
]
print([len(batches) for batches in seen], seen[4][0][:, 0].tolist())
""")
    assert done.stdout == "[3, 2, 7, 2, 2, 3, 2] [3.0, 2.0, 1.0]\n"
    fetches = [span.value for span in done.journal.of("FETCH")]
    assert fetches == [3, 3, 1, 3, 3, *[-1] * 7, 2, 2, 3, 1, 2, 1, 3, -1, -1]


def test_a_dataset_with_a_getitems_of_its_own_instance_gets_a_list(train) -> None:
    done = train(f"""{DATA}
class Borrowing(Data):
    def __init__(self):
        super().__init__(80)
        self.__getitems__ = self.take
    def take(self, indices):
        kinds.add(type(indices))
        return indices
kinds = set()
list(DataLoader(Borrowing(), 2))
print(kinds)
""")
    assert done.stdout == "{<class 'list'>}\n"


def test_a_loader_inside_a_dataset_is_part_of_its_batch(train) -> None:
    done = train(f"""{DATA}
class Outer(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return torch.cat(list(DataLoader(Data(4), 2)))
for batch in DataLoader(Outer(), 2): pass
""")
    assert [span.label for span in done.journal.of("FETCH")] == ["__main__.Outer"]


def test_what_the_user_gave_is_what_the_user_finds_while_a_batch_is_made_and_after(train, bare) -> None:
    program = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        seen.append((loader.dataset is data, loader.collate_fn is collate, type(index).__name__))
        return index
def collate(samples):
    seen.append((type(samples).__name__, loader.collate_fn is collate, iterator._collate_fn is collate))
    return samples
seen, data = [], Data()
loader = torch.utils.data.DataLoader(data, 2, collate_fn=collate)
iterator = iter(loader)
batches = list(iterator)
fetcher = iterator._dataset_fetcher
seen.append((fetcher.collate_fn is collate, fetcher.dataset is data, sorted(vars(fetcher)), batches))
import pickle, copy
seen.append((len(pickle.dumps(torch.utils.data.DataLoader([1], 1))), sorted(vars(copy.copy(loader)))))
print(seen)
"""
    assert train(program).stdout == bare(program)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 a frame cannot leave a traceback")
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_dataset_or_collate_function_raises_reads_as_without_the_recorder(
    train, workers: int, bare
) -> None:
    program = f"""
import traceback
class Missing(LookupError): pass
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): raise Missing("no sample", index) from ValueError("why")
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 1
        raise KeyError("torn")
def collate(samples): raise ZeroDivisionError("cannot")
DataLoader = torch.utils.data.DataLoader
loaders = (
    DataLoader(Data(), num_workers={workers}),
    DataLoader(Stream(), num_workers={workers}),
    DataLoader([1, 2], collate_fn=collate, num_workers={workers}),
    DataLoader([1, 2], collate_fn=torch.stack, num_workers={workers}),
)
for loader in loaders:
    try:
        for batch in loader: pass
    except Exception as error:
        lines = traceback.format_exception(error)
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        print(type(error).__name__, error.__cause__, error.__context__, frames)
        print(str(error).partition("Original")[2].count("File"), len(lines))
        print([line for line in str(error).splitlines() if "File" in line and "torch" in line])
"""
    # In a forked worker torch itself complains about the loader before, whose iterator the error keeps alive.
    recorded = train(program, check=workers == 0)
    assert recorded.stdout == bare(program)
    assert recorded.stdout.count("\n") == 12


def test_results_are_bit_for_bit_those_of_a_bare_run(train, bare) -> None:
    program = f"""{DATA}
import random
class Noisy(Data):
    def __getitem__(self, index): return torch.rand(3) + random.random() + index
torch.manual_seed(3)
random.seed(3)
for workers in (0, 2):
    for batch in DataLoader(Noisy(), 4, shuffle=True, num_workers=workers): print(batch.tolist())
print(torch.rand(2).tolist())
"""
    assert train(program).stdout == bare(program)


def test_times_of_single_samples_are_reported(train) -> None:
    done = train(f"""{DATA}
class Uneven(Data):
    def __getitem__(self, index): return sum(range(1_000_000 if index % 10 == 9 else 2_000))
for batch in DataLoader(Uneven(100), 10): pass
""")
    count, median, p90, p99, longest = map(int, done.journal.facts["sample_times"].split())
    assert count >= 10
    assert median <= p90 <= p99 <= longest
    assert longest > 20 * median


def test_the_times_of_samples_are_as_precise_as_their_size_classes(train) -> None:
    done = train("""
from perfwrap_recorder.probes.data_loading import sample_times
for duration in (8, 17, 1_000, 1_060_000, 123_456_789):
    print(abs(sample_times.middle_of(sample_times.size_of(duration)) / duration - 1) < 0.07)
times = sample_times.SampleTimes()
times.add([*range(0, 100_000, 1_000), 1_099_000])
print(abs(times.share(0.5) / 1_000 - 1) < 0.07, times.share(1.0), sum(times.counts.values()))
""")
    assert done.stdout == "True\n" * 5 + "True 1000000 100\n"


def test_bytes_are_known_for_plain_tensors_in_plain_containers_only(train) -> None:
    done = train("""
from collections import OrderedDict, UserDict, namedtuple
from perfwrap_recorder.program import batches
weigh = batches.weigh_for(torch)
t = torch.zeros(3, 2)
class Own: pass
class Odd(list):
    def __iter__(self): raise RuntimeError("asked")
class Sub(torch.Tensor): pass
Pair = namedtuple("Pair", "x y")
shapes = [t, [t, t], {"x": t, "y": 1, "z": "words"}, Pair(t, [t]), OrderedDict(x={"y": (t,)}), Odd([t])]
print([weigh(batch) for batch in shapes + [UserDict(x=t)]])
print([weigh(batch) for batch in (Own(), [t, Own()], t.as_subclass(Sub), 3, [], ["a"], [[[[[t]]]]], [t] * 65)])
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print("seen", func)
        return func(*args, **(kwargs or {}))
with Mode(): print(weigh([t]))
""")
    assert done.stdout == f"{[24, 48, 24, 48, 24, 24, 24]}\n{[-1] * 8}\n24\n"


def test_modules_and_readings_of_samples_are_part_of_making_the_batch(train) -> None:
    journal = train(f"""{DATA}
class Normalized(Data):
    scale = torch.nn.Linear(5, 5)
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        assert sample[0].item() == index == int(sample[1])
        with torch.no_grad(): return self.scale(sample)
model = torch.nn.Linear(5, 1)
for batch in DataLoader(Normalized(12), 4):
    model(batch).sum().item()
""").journal
    batches, forwards, reads = journal.of("FETCH"), journal.of("FORWARD"), journal.of("SYNC")
    assert [len(found) for found in (batches, forwards, reads)] == [3] * 3
    for batch, forward, read in zip(batches, forwards, reads, strict=True):
        assert batch.start + batch.duration <= forward.start <= read.start


def test_most_batches_of_a_dataset_that_uses_no_device_are_not_watched_for_calls_of_tensors(train) -> None:
    done = train(f"""{DATA}
import threading
from _thread import get_ident
from perfwrap_recorder.instrumenting import making
quiet, others = [], []
class Using(Data):
    use_at = None
    def __getitem__(self, index):
        quiet.append(get_ident() in making.quiet)
        if len(quiet) == 1:
            thread = threading.Thread(target=lambda: others.append(get_ident() in making.quiet))
            thread.start()
            thread.join()
        if index == self.use_at:
            making.note_device()
        return super().__getitem__(index)
data = Using(64)
for _ in DataLoader(data, 1): pass
print(quiet.index(True) == making.WATCH_FIRST, quiet.count(False) - making.WATCH_FIRST, others, making.quiet)
del quiet[:]
Using.use_at = 15  # a batch that is watched: the first ones of each dataset object were before
for _ in DataLoader(data, 1): pass
print(quiet[16 : 16 + making.WATCH_FIRST] == [False] * making.WATCH_FIRST, all(quiet[33:47]))
class Failing(Data):
    def __getitem__(self, index): raise ValueError
for _ in range(20):
    try: next(iter(DataLoader(Failing(1), 1)))
    except ValueError: pass
print(making.quiet, making._current)
""")
    assert done.stdout == "True 3 [False] set()\nTrue True\nset() {}\n"
