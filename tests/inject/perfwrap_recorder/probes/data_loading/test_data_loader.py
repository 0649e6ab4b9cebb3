"""Loaders of every kind are timed, named and described, and stay what they were."""

from __future__ import annotations

import pytest


def test_several_loaders_keep_their_names_and_the_lines_that_made_them(train) -> None:
    done = train("""
from torch.utils.data import DataLoader
class Mine(DataLoader):
    def __init__(self, data):
        super().__init__(data, batch_size=4)
class Trainer:
    def __init__(self):
        self.train = DataLoader(list(range(10)), batch_size=5)  # TRAIN
        self.valid = Mine(list(range(8)))  # VALID
trainer = Trainer()
for _ in range(2):
    for a, b in zip(trainer.train, trainer.valid): pass
""")
    facts = done.journal.facts
    program = (done.run_dir / "program.py").read_text().splitlines()
    lines = {text[-5:]: str(number) for number, text in enumerate(program, 1) if text[-5:].isupper()}
    assert facts["loader/1/created"].split("\x1f")[1:] == [
        lines["TRAIN"],
        facts["loader/2/created"].split("\x1f")[2],
    ]
    assert facts["loader/2/created"].split("\x1f")[1] == lines["VALID"]
    labels = [span.label for span in done.journal.of("DATA")]
    assert (labels.count("loader/1"), labels.count("loader/2")) == (4, 4)
    assert facts["loader/1/dataset"] == "builtins.list"
    assert facts["loader/1/dataset_len"] == "10"


def test_a_loader_that_is_recreated_for_each_epoch_is_one_loader(train) -> None:
    done = train("""
from torch.utils.data import DataLoader
class Text(torch.utils.data.Dataset):
    def __len__(self): return 3
    def __getitem__(self, index): return index
def make(data):
    return DataLoader(data, num_workers=0)
for epoch in range(30):
    train = make(list(range(2)))
    valid = make(list(range(2)))
    for _ in train: pass
    for _ in valid: pass
both = [DataLoader(data) for data in (Text(), Text())]
for loader in both:
    for _ in loader: pass
""")
    counts: dict[str, int] = {}
    for span in done.journal.of("DATA"):
        counts[span.label] = counts.get(span.label, 0) + 1
    assert counts == {"loader/1": 60, "loader/2": 60, "loader/3": 3, "loader/4": 3}
    again = [key for key in done.journal.facts if key.endswith("/made_again")]
    assert sorted(again) == ["loader/1/made_again", "loader/2/made_again"]


def test_batch_sizes_are_known_for_the_usual_shapes_of_batches(train) -> None:
    done = train("""
from torch.utils.data import DataLoader
def collate(kind):
    return lambda batch: kind(torch.tensor(batch))
kinds = (lambda t: t, lambda t: [t, t], lambda t: (t,), lambda t: {"x": t}, lambda t: [[t]], lambda t: "text")
for kind in kinds:
    for batch in DataLoader(list(range(5)), batch_size=3, collate_fn=collate(kind)): pass
for batch in DataLoader(list(range(5)), batch_size=None): pass
""")
    values = [span.value for span in done.journal.of("DATA")]
    assert values == [3, 2] * 4 + [3, 3] * 2 + [-1] * 5


def test_an_unusual_dataset_is_not_asked_for_its_length(train, run_bare) -> None:
    done = train("""
class Data(torch.utils.data.Dataset):
    asked = 0
    def __len__(self):
        Data.asked += 1
        return 4
    def __getitem__(self, index): return index
for _ in torch.utils.data.DataLoader(Data()): pass
print(Data.asked)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(range(3))
for _ in torch.utils.data.DataLoader(Stream()): pass
""")

    bare = """
import torch
class Data(torch.utils.data.Dataset):
    asked = 0
    def __len__(self):
        Data.asked += 1
        return 4
    def __getitem__(self, index): return index
for _ in torch.utils.data.DataLoader(Data()): pass
print(Data.asked)
"""
    assert done.stdout == run_bare(bare)
    assert len(done.journal.of("DATA")) == 7
    assert done.journal.facts["loader/1/dataset"] == "__main__.Data"


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_say_who_they_are_and_the_main_process_waits(train, persistent: bool) -> None:
    done = train(
        f"""
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(float(index)).item()
loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2, persistent_workers={persistent})
print(type(iter(loader)).__name__, len(loader))
for _ in range(2):
    for batch in loader: pass
print(os.getpid())
"""
    )
    kind, length, pid = done.stdout.split()
    assert (kind, length) == ("_MultiProcessingDataLoaderIter", "4")
    main = next(found for found in done.journals if found.header[2] == int(pid))
    workers = [found for found in done.journals if found is not main]
    assert len(workers) == (2 if persistent else 6)
    assert {found.facts["role"] for found in workers} == {"worker"}
    assert not any(found.of("SYNC", "FORWARD", "TRANSFER") for found in workers)
    assert sum(len(found.of("FETCH")) for found in workers) >= 8
    assert len(main.of("LOADER_START")) == (1 if persistent else 3)
    assert {span.value for span in main.of("LOADER_START")} == {2}
    assert len(main.of("DATA")) == 8
    assert all(found.path.stat().st_size <= (8 << 20) // 16 for found in workers)


def test_spawned_workers_find_the_function_that_they_run(train) -> None:
    done = train("""
import multiprocessing
if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    context = multiprocessing.get_context("spawn")
    loader = torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context=context)
    print(len(list(loader)))
    let_feeders_end()
""")
    assert done.stdout == "6\n"


def test_errors_from_a_dataset_come_through_as_they_are(train) -> None:
    done = train("""
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): raise KeyError("missing")
for workers in (0, 1):
    try:
        for batch in torch.utils.data.DataLoader(Data(), num_workers=workers): pass
    except KeyError as error:
        print(type(error).__name__, error.__context__, error.__cause__)
""")
    assert done.stdout == "KeyError None None\n" * 2
    assert not done.journals[0].of("DATA")


def test_many_loaders_are_not_remembered_forever(train) -> None:
    done = train("""
from perfwrap_recorder.probes.data_loading import data_loader
for size in range(1, 1_501):
    for batch in torch.utils.data.DataLoader([1], batch_size=size): pass
print(len(data_loader._loaders), len(data_loader._iterators), len(data_loader._named))
""")
    loaders, iterators, named = map(int, done.stdout.split())
    assert loaders <= 1_001 and iterators <= 1_001 and named <= 200
    assert done.journal.of("DATA")[-1].label == "loader/more"


def test_a_user_defined_iterator_is_timed_under_a_common_name(train) -> None:
    done = train("""
from torch.utils.data.dataloader import DataLoader, _SingleProcessDataLoaderIter
for batch in _SingleProcessDataLoaderIter(DataLoader([1, 2])): pass
""")
    assert [span.label for span in done.journal.of("DATA")] == ["loader", "loader"]


def test_the_first_wait_holds_no_start_of_workers(train) -> None:
    done = train("""
import time
loader = torch.utils.data.DataLoader(list(range(4)), num_workers=1)
iterator = iter(loader)
deadline = time.monotonic() + 200
while iterator._worker_result_queue.empty() and time.monotonic() < deadline: pass
next(iterator)
""")
    main = next(found for found in done.journals if found.of("DATA"))
    (start,) = main.of("LOADER_START")
    (wait,) = main.of("DATA")
    assert start.start + start.duration < wait.start


def test_a_loader_of_a_daemon_is_known_to_have_no_workers(train) -> None:
    done = train("""
import multiprocessing
from torch.utils.data import DataLoader
for daemon in (False, True):
    multiprocessing.current_process()._config["daemon"] = daemon
    for _ in DataLoader(list(range(4)), batch_size=2 - daemon): pass
multiprocessing.current_process()._config["daemon"] = False
""")
    facts = done.journal.facts
    assert "loader/1/daemon" not in facts
    assert facts["loader/2/daemon"] == "True"
