"""What is recorded of padded batches, by the inputs of models and loaders, without effect on the program."""

from __future__ import annotations

import pytest

NET = """
from torch.utils.data import DataLoader
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(2000, 4), nn.Linear(4, 2)
    def forward(self, ids, mask=None):
        return self.out(self.words(ids).mean(1))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def rows(longest, width, at=slice(None), shortest=4):
    found = torch.zeros(6, width, dtype=torch.long)
    for row in range(6):
        length = longest if row == 0 else shortest + row % 2
        found[row, :length] = torch.arange(1, length + 1)
    return found[:, at]
def train(ids, steps=3, call=lambda ids: net(ids)):
    for _ in range(steps):
        optimizer.zero_grad()
        call(ids).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("program", "reported"),
    [
        ("train(rows(12, 32))", "3 96 60 576 471 32 32 0"),
        ("train(rows(12, 32).flip(1))", "3 96 60 576 471 32 32 0"),
        ("train(rows(12, 32).int(), call=lambda ids: net(ids=ids))", "3 96 60 576 471 32 32 0"),
        (
            "train(rows(12, 32), call=lambda ids: net(ids, {'mask': ids != 0, 'types': ids * 0}))",
            "3 96 60 576 471 32 32 0",
        ),
        (
            "train(rows(12, 32), call=lambda ids: net(ids, torch.arange(6 * 32).view(6, 32)))",
            "3 96 0 576 0 32 32 0",
        ),
        (
            "train(rows(12, 32), call=lambda ids: net(ids, torch.arange(32).expand(6, 32)))",
            "3 96 60 576 471 32 32 0",
        ),
        ("train(rows(31, 32, shortest=30))", "3 96 0 576 0 32 32 0"),
        ("train(rows(28, 32))", "3 96 0 576 0 32 32 0"),
        ("train(rows(32, 32))", "3 96 0 576 0 32 32 0"),
        ("train(rows(12, 32))\ntrain(rows(12, 48))", "6 240 168 1440 1230 32 48 0"),
        ("train(rows(12, 32), call=lambda ids: net(ids, torch.ones(9, 99)))", "3 96 60 576 471 32 32 3"),
        ("train(rows(12, 32), call=lambda ids: net(ids, object()))", "3 96 60 576 471 32 32 3"),
        ("train(torch.cat([rows(12, 32)] * 400))", "3 96 60 230400 188400 32 32 0"),
        (
            "x = rows(12, 32, shortest=12)\nx[:, 12] = 0; x[:, 1] += torch.arange(6)\ntrain(x)",
            "3 96 0 576 0 32 32 0",
        ),
        ("x = rows(12, 32)\nx[:, 0] = 0; x[0, 2:4] = 0\ntrain(x)", "3 96 0 576 0 32 32 0"),
        ("train(torch.cat([torch.full((6, 20), 9), rows(20, 20, shortest=19)], 1))", "3 120 0 720 0 40 40 0"),
        ("train(rows(12, 12))", None),
        ("train((rows(12, 32) > 0).long())", None),
        ("train(rows(12, 32) * 0 + 7)", None),
        ("train(rows(12, 32)[:1])", None),
        ("train(rows(12, 32), steps=60)", "16 512 320 3072 2512 32 32 0"),
        ("net.eval()\ntrain(rows(12, 32))", None),
        ("with torch.no_grad():\n    for _ in range(3): net(rows(12, 32))", None),
    ],
    ids=[
        "at the end",
        "at the beginning",
        "by name, 32 bits",
        "types and a mask beside",
        "other numbers beside",
        "positions beside",
        "one",
        "few",
        "none",
        "two widths",
        "other data beside",
        "an object beside",
        "many rows",
        "all of one length",
        "the same inside",
        "a prompt",
        "short",
        "a mask",
        "all the same",
        "one row",
        "no more than needed",
        "evaluation",
        "without gradients",
    ],
)
def test_a_models_padding_is_reported(train, program: str, reported: str | None) -> None:
    done = train(NET + program)
    assert done.returncode == 0
    assert done.journal.facts.get("padding/Net") == reported


def test_a_loaders_padding_is_reported(train) -> None:
    done = train(
        NET
        + """
loader = DataLoader(list(range(4)), 1, collate_fn=lambda _: {"ids": rows(12, 32), "label": torch.ones(6)})
for batch in loader:
    pass
"""
    )
    assert done.journal.facts["padding/loader/1"] == "4 128 80 768 628 32 32 0"


@pytest.mark.parametrize(
    ("inside", "skips", "mixes"),
    [
        ("pass", "False", "False"),
        ("nn.utils.rnn.pack_padded_sequence(1, 2) if 0 else None", "True", "True"),
        ("self.heads_attn if 0 else None", "False", "True"),
        ("self.attention_mask if 0 else None", "False", "False"),
        ("pack = lambda: nn.utils.rnn.pack_padded_sequence(1, 2)", "True", "True"),
        ("[self.unpad() for _ in ()]", "True", "False"),
    ],
)
def test_what_models_do_with_sequences_is_known(train, inside: str, skips: str, mixes: str) -> None:
    program = NET.replace("        return self.out(", f"        {inside}\n        return self.out(")
    done = train(program + "train(rows(12, 32))")
    assert done.journal.facts["model/Net/embeds"] == "True"
    assert done.journal.facts["model/Net/skips_padding"] == skips
    assert done.journal.facts["model/Net/mixes_positions"] == mixes


def test_a_child_may_compute_though_the_parent_was_watched(train) -> None:
    done = train("""
import os
from torch.utils.data import DataLoader
torch.set_num_threads(2)
for batch in DataLoader(list(range(64 * 5)), 64, collate_fn=lambda _: torch.randint(5, (64, 1024))):
    pass
child = os.fork()
if not child:
    (torch.ones(1000, 1000) + 1).sum()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
    assert done.returncode == 0


def test_results_are_as_without_it_and_nothing_is_observed(train) -> None:
    done = train(
        NET
        + """
import copy
from torch.overrides import TorchFunctionMode
from perfwrap_recorder.probes.data_loading import padding_facts
other, state = copy.deepcopy(net), torch.get_rng_state()
train(rows(12, 32))
assert padding_facts.left["model"] < padding_facts.LOOKS and torch.equal(state, torch.get_rng_state())
asked = []
class Watch(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        asked.append(function.__name__)
        return function(*arguments, **(options or {}))
with Watch():
    other(rows(12, 32))
assert "cumprod" not in asked, asked
with torch.autograd.profiler.profile() as profiler:
    other(rows(12, 32))
assert "aten::cumprod" not in {event.name for event in profiler.function_events}
""",
        check=False,  # the profiler writes to stderr
    )
    assert done.returncode == 0, done.stderr
