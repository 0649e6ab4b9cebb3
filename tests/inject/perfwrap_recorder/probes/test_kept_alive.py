"""What a program lets go of is gone, as it is without perfwrap: models, data sets and all that their functions hold."""

from __future__ import annotations

PROGRAM = """
import functools, gc, weakref
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

born, gone = [], []
def watch(thing, name):
    born.append(name)
    weakref.finalize(thing, gone.append, name)
    return thing

def train(round, workers):
    large = watch(torch.nn.Linear(4, 4), "what a class's method holds")
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = large
        def forward(self, batch): return self.layer(batch)
    class Data(Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return torch.ones(4) * index + 0 * held.weight[0, 0].item()
    class Stream(IterableDataset):
        def __iter__(self): yield from (torch.ones(4) for _ in range(8))
    class Order(Sampler):
        def __init__(self, data): self.data = data
        def __len__(self): return len(self.data)
        def __iter__(self): return iter(range(len(self.data)))
    class Callable:
        __slots__ = ()
        def __call__(self, samples): return torch.stack(samples)
    class Mine(torch.optim.Optimizer):
        def __init__(self, parameters): super().__init__(parameters, {"lr": 0.1})
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]: parameter -= 0.1 * parameter.grad
    held = watch(torch.nn.Linear(4, 4), "what a dataset's class holds")
    caught = watch(torch.nn.Linear(4, 4), "what a collate function holds")
    def collate(samples):
        assert caught is not None
        return torch.stack(samples)
    for kind in (Model, Data, Stream, Order, Callable, Mine): watch(kind, kind.__name__ + ", the class")
    model = watch(Model(), "model")
    for make in (
        lambda: DataLoader(watch(Data(), "data"), 4, sampler=Order(range(8)), collate_fn=watch(collate, "collate"),
                           num_workers=workers),
        lambda: DataLoader(watch(Data(), "data"), 4, shuffle=True, collate_fn=functools.partial(collate)),
        lambda: DataLoader(watch(Stream(), "stream"), 4, collate_fn=Callable(), num_workers=workers),
    ):
        loader = watch(make(), "loader")
        for optimizer in (torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(model.parameters()),
                          Mine(model.parameters())):
            watch(optimizer, "optimizer")
            schedule = watch(torch.optim.lr_scheduler.StepLR(optimizer, 1), "schedule")
            for batch in loader:
                optimizer.zero_grad()
                loss = model(batch).sum()
                watch(loss, "loss")
                loss.backward(retain_graph=True)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                loss.item(), loss.detach().cpu().numpy()
            schedule.step()
    run = torch.jit.trace(model, batch) if round else torch.compile(model, backend="eager")
    watch(run, "run")(batch)

for round, workers in enumerate((0, 2)):
    train(round, workers)
    if hasattr(torch, "_dynamo"): torch._dynamo.reset()
    gc.collect()
print(len(born), len(gone), sorted(set(born) - set(gone)))
print([name for name in sorted(set(born)) if born.count(name) != gone.count(name)])
"""


def test_all_that_a_program_lets_go_of_is_gone(train, run_bare) -> None:
    assert train(PROGRAM).stdout == run_bare("import torch\ntorch.set_num_threads(1)\n" + PROGRAM)


def test_a_local_that_is_deleted_is_gone_at_once(train, run_bare) -> None:
    """Up to Python 3.12, reading the variables of a running frame would keep them until it ends."""
    program = """
class Large:
    def __del__(self): print("gone")
class Mine(torch.utils.data.DataLoader):
    def __init__(self, data):
        large = Large()
        super().__init__(data)
        del large
        print("made")
class Trainer:
    def __init__(self, options):
        large = Large()
        self.loader = Mine([1, 2]) if options else torch.utils.data.DataLoader([1, 2])
        del large
        print("deleted")
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in self.loader:
            large = Large()
            model(batch.float()[:, None]).sum().backward()
            optimizer.step()
            del large
            print("stepped")
Trainer(False)
Trainer(True)
"""
    done = train(program)
    assert done.stdout == run_bare("import torch\n" + program)
    assert done.stdout.splitlines()[:2] == ["gone", "deleted"]
    places = [done.journal.facts[f"loader/{number}/created"].split("\x1f")[1:] for number in (1, 2)]
    assert places[0] == places[1], "the line that made the loader, not the one in its own class"
