"""What dill and cloudpickle store of torch's functions by value is the same as without the recorder."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRAIN = """
net = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def step():
    optimizer.zero_grad()
    net(torch.ones(1)).sum().backward()
    optimizer.step()
for _ in range(5): step()
"""
READ = """
import pickle, torch
weight = torch.ones(1, requires_grad=True)
weight.sum().backward()
with open("stored", "rb") as file: kind = pickle.load(file)
kind([weight], lr=0.25).step()
print(kind is torch.optim.SGD, weight.item())
"""
BY = {
    "cloudpickle": """
import cloudpickle, sys
cloudpickle.register_pickle_by_value(sys.modules["torch.optim.sgd"])
store = cloudpickle.dumps
""",
    "dill": """
import dill
def store(thing): return dill.dumps(thing, recurse=True)
""",
}


@pytest.mark.parametrize("pickler", BY)
@pytest.mark.filterwarnings("ignore")
def test_a_stored_optimizer_can_be_read_without_the_recorder(train, pickler: str) -> None:
    pytest.importorskip(pickler)
    program = f"""{BY[pickler]}{TRAIN}
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    stored = store(torch.optim.SGD)
with open("stored", "wb") as file: file.write(stored)
step()
print(b"perfwrap" in stored)
"""
    done = train(program)
    assert done.stdout == "False\n"
    steps = [span for span in done.journal.of("OPTIMIZER") if span.name.startswith("SGD")]
    assert len(steps) == 6  # it records again afterwards
    read = subprocess.run(
        [sys.executable, "-c", READ.replace("import pickle", f"import {pickler}, pickle")],
        cwd=done.run_dir,
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stdout == "False 0.75\n"
