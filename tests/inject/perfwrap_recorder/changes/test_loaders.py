"""Changes of loaders: what the program finds, where they refuse, how they combine."""

from __future__ import annotations

import pytest

LOADER = """
loader = torch.utils.data.DataLoader(Data(), 4)
"""
SHOW = """
shown = "num_workers", "prefetch_factor", "persistent_workers", "batch_size"
print(*(getattr(loader, name) for name in shown), len(list(loader)))
"""


def test_workers_are_what_was_requested_and_the_line_is_named(tried) -> None:
    done = tried(LOADER + SHOW, "workers=2")
    assert done.stdout == "2 2 False 4 16\n"
    assert done.said("workers") == "applied"
    assert done.sites("workers") == [("program.py", 2, "num_workers=0", "num_workers=2")]
    assert done.said("workers", "count") == "1"


def test_no_workers_takes_away_what_needs_them(tried) -> None:
    program = """
loader = torch.utils.data.DataLoader(
    Data(), 4, num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=9, multiprocessing_context="fork")
"""
    done = tried(program + SHOW, "workers=0")
    assert done.stdout == "0 None False 4 16\n"


def test_changes_of_one_loader_combine_whatever_their_order(tried) -> None:
    done = tried(LOADER + SHOW, "persistent-workers", "prefetch=5", "batch-size=8", "workers=2", "pin-memory")
    assert done.stdout == "2 5 True 8 8\n"
    names = ("workers", "prefetch", "persistent-workers", "batch-size")
    assert [done.said(name) for name in names] == ["applied"] * 4
    assert done.said("pin-memory") == "refused"
    assert "GPU" in done.said("pin-memory", "reason")


def test_without_workers_there_is_nothing_to_prefetch_or_keep(tried) -> None:
    done = tried(LOADER + SHOW, "prefetch=4", "persistent-workers")
    assert done.stdout == "0 None False 4 16\n"
    assert done.said("prefetch") == done.said("persistent-workers") == "refused"
    assert "no workers" in done.said("prefetch", "reason")


STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(self.mine(range(8)))
    def mine(self, every): return {mine}
def divide(every):
    info = torch.utils.data.get_worker_info()
    return every if info is None else every[info.id::info.num_workers]
loader = torch.utils.data.DataLoader(Stream(), batch_size=None, num_workers={workers})
print(loader.num_workers, sorted(loader))
"""


def test_a_stream_that_does_not_divide_itself_is_left_alone(tried) -> None:
    done = tried(STREAM.format(mine="every", workers=0), "workers=2")
    assert done.stdout == "0 [0, 1, 2, 3, 4, 5, 6, 7]\n"
    assert done.said("workers") == "refused"
    assert "Stream" in done.said("workers", "reason")


@pytest.mark.parametrize(("mine", "workers"), [("divide(every)", 0), ("divide(every)", 1), ("every[:1]", 2)])
def test_a_stream_that_divides_itself_gets_its_workers(tried, mine: str, workers: int) -> None:
    done = tried(STREAM.format(mine=mine, workers=workers), "workers=3")
    assert done.stdout.startswith("3 ")
    assert done.said("workers") == "applied"
    if workers < 2:
        assert done.stdout == "3 [0, 1, 2, 3, 4, 5, 6, 7]\n"


def test_subclasses_name_the_line_that_makes_them(tried) -> None:
    program = """
class Mine(torch.utils.data.DataLoader):
    def __init__(self, data, *rest):
        super().__init__(data, *rest)
loader = Mine(Data(), 4)
"""
    done = tried(program + SHOW, "workers=1")
    assert done.sites("workers") == [("program.py", 5, "num_workers=0", "num_workers=1")]


def test_spawned_workers_need_what_pickle_can_carry(tried) -> None:
    program = """
if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    bad, good = Data(), Data(8)
    bad.function = lambda: 0
    for data in (bad, good):
        loader = torch.utils.data.DataLoader(data, 4)
        print(loader.num_workers, len(list(loader)))
"""
    done = tried(program, "workers=1")
    assert done.stdout == "0 16\n1 2\n"


def test_a_daemon_keeps_its_loader_without_workers(tried) -> None:
    program = """
def work():
    print(len(list(torch.utils.data.DataLoader(Data(), 4))), flush=True)
process = torch.multiprocessing.get_context("fork").Process(target=work, daemon=True)
process.start(); process.join()
sys.exit(process.exitcode)
"""
    assert tried(program, "workers=1").stdout == "16\n"


def test_a_wrong_call_fails_in_its_own_words(tried) -> None:
    program = """
for make in (lambda: torch.utils.data.DataLoader(), lambda: torch.utils.data.DataLoader(Data(), 4, batch_size=4),
             lambda: torch.utils.data.DataLoader(Data(), colour=1)):
    try: make()
    except TypeError as error: print(error)
"""
    assert tried(program, "workers=1").stdout == tried(program).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("batch_sampler=[[0, 1], [2, 3]]", "class list"),
        ("batch_size=None", "batch size is None"),
    ],
)
def test_batches_that_others_make_keep_their_size(tried, arguments: str, said: str) -> None:
    done = tried(f"print(len(list(torch.utils.data.DataLoader(Data(), {arguments}))))", "batch-size=16")
    assert done.said("batch-size") == "refused"
    assert said in done.said("batch-size", "reason")
    assert done.stdout == tried(f"print(len(list(torch.utils.data.DataLoader(Data(), {arguments}))))").stdout


def test_torchs_own_batch_sampler_is_recreated_around_the_same_sampler(tried) -> None:
    program = """
from torch.utils.data import BatchSampler, SequentialSampler, DataLoader
theirs = BatchSampler(SequentialSampler(Data()), 4, drop_last=False)
loader = DataLoader(Data(), batch_sampler=theirs)
print([len(y) for _, y in loader], theirs.batch_size, loader.batch_sampler.sampler is theirs.sampler)
"""
    done = tried(program, "batch-size=32")
    assert done.stdout == "[32, 32] 4 True\n"
    assert done.sites("batch-size") == [("program.py", 4, "batch_size=4", "batch_size=32")]


CACHED = """
made = []
class Counted(Data):
    def __getitem__(self, index):
        made.append(index)
        return {"x": torch.full((8,), float(index)), "y": index % 2}
loader = torch.utils.data.DataLoader(Counted(16), 4)
for _ in range(3):
    seen = []
    for batch in loader:
        seen.append(batch.pop("x").mul_(2)[3, 0].item())
    print(len(seen), set(seen), len(made), sorted(batch))
"""


def test_the_first_batch_is_repeated_for_as_long_as_an_epoch_and_stays_as_it_was(tried) -> None:
    done = tried(CACHED, "cached-batch")
    assert done.stdout == "4 {6.0} 4 ['y']\n" * 3
    assert done.said("cached-batch") == "applied"
    assert done.said("cached-batch", "count") == "11"
    assert done.sites("cached-batch")[0][:2] == ("program.py", 10)


@pytest.mark.parametrize("persistent", [False, True])
def test_cached_batches_start_workers_once(tried, persistent: bool) -> None:
    program = f"""
loader = torch.utils.data.DataLoader(Data(32), 4, num_workers=2, persistent_workers={persistent})
for _ in range(3): print([float(x[1, 0]) for x, _ in loader])
"""
    done = tried(program, "cached-batch")
    assert done.stdout == f"{[1.0] * 8}\n" * 3


def test_batches_of_unknown_number_are_repeated_while_they_are_trained_with(tried) -> None:
    program = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for index in range(40): yield torch.full((8,), float(index)), index % 2
model, loader = nn.Linear(8, 2), torch.utils.data.DataLoader(Stream(), 4)
firsts = []
for x, y in loader:
    firsts.append(x[0, 0].item())
    nn.functional.cross_entropy(model(x), y).backward()
    if len(firsts) == 30: break
print(set(firsts))
for x, y in torch.utils.data.DataLoader(Stream(), 4):
    last = x[0, 0].item()
print(last)
"""
    assert tried(program, "cached-batch").stdout == "{0.0}\n36.0\n"


VALIDATE = """
model, optimizer = nn.Linear(8, 2), None
optimizer = torch.optim.SGD(model.parameters(), 0.01)
training = torch.utils.data.DataLoader(Data(32), 4)
testing = torch.utils.data.DataLoader(Data(32), 4)
counts = []
for _ in range(2):
    model.train()
    train(training, model, optimizer, epochs=1)
    model.eval()
    count = 0
    for x, y in testing:
        {call}
        count += 1
    counts.append(count)
print(counts)
"""


@pytest.mark.parametrize("call", ["nn.CrossEntropyLoss()(model(x), y)", "with torch.no_grad(): model(x)"])
def test_validation_ends_after_its_first_batch_and_training_does_not(tried, call: str) -> None:
    done = tried(VALIDATE.format(call=call), "no-validation")
    assert done.stdout == "[1, 1]\n"
    assert done.said("no-validation", "count") == "2"
    assert done.sites("no-validation")[0][:2] == ("program.py", 12)


def test_a_loop_that_calls_no_model_is_no_validation(tried) -> None:
    done = tried(VALIDATE.format(call="pass"), "no-validation", "cached-batch")
    assert done.stdout == "[8, 8]\n"
    assert done.said("no-validation") == "unused"
