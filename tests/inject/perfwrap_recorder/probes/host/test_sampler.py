"""Samples of a real training loop name the phase that each line was in."""

from __future__ import annotations

START = """
journal.settings.sample_hz = 200
import_module("perfwrap_recorder.probes.host.sampler").install(torch)
"""

TRAIN = """
from perfwrap_recorder.probes.host import stack_sampler
taken = [0]
take = stack_sampler.Samples.take
def count(self):
    take(self)
    taken[0] += 1
stack_sampler.Samples.take = count
def spin():
    until, limit = taken[0] + 5, clock.now() + 60 * 10**9
    while taken[0] < until and clock.now() < limit: sum(range(100))
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index):
        spin()  # DATA
        return torch.ones(2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        spin()  # FORWARD
        return self.layer(x)
class Descent(torch.optim.SGD):
    def step(self, closure=None):
        spin()  # OPTIMIZER
        return super().step(closure)
net = Net()
optimizer = Descent(net.parameters(), lr=0.1)
def train(workers):
    for x in torch.utils.data.DataLoader(Data(), num_workers=workers):
        spin()  # PYTHON
        net(x).sum().backward()
        optimizer.step()
"""


def test_each_line_is_in_the_phase_that_runs_it(train) -> None:
    done = train(START + TRAIN + "train(0)\n")
    found = {record.label for record in done.journal.of("STACK") if record.line[2] == "spin"}
    assert {"", "fetch", "forward", "optimizer"} <= found


def test_workers_are_sampled_in_their_own_journals(train) -> None:
    done = train(START + TRAIN + "train(1)\n")
    workers = [found for found in done.journals if found.facts.get("role") == "worker"]
    assert workers
    assert any(record.line[2] == "spin" for found in workers for record in found.of("STACK"))


def test_without_a_request_there_is_no_thread(train) -> None:
    done = train("""
import time
nn.Linear(1, 1)(torch.ones(1))
from perfwrap_recorder.probes.host import stack_sampler
print(len(sys._current_frames()), stack_sampler._alarm)
""")
    assert done.stdout == "1 None\n"
    assert not done.journal.of("STACK")
