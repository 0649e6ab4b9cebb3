"""Dynamo knows the methods of tensors that are watched, also where it is loaded after the recorder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")

PROGRAM = """
import torch
graphs = []
def keep(module, inputs):
    graphs.append([str(node.target) for node in module.graph.nodes])
    return module.forward
class Shifted(torch.Tensor):
    def to(self, *args):
        return super().to(*args) + 1
torch.compile(lambda t: torch.Tensor.to(t, torch.float64), backend=keep, fullgraph=True)(torch.ones(3))
torch.compile(lambda t: (t * 2).to(torch.float64), backend=keep)(torch.ones(3).as_subclass(Shifted))
print(graphs)
from torch._dynamo import trace_rules
trace_rules.get_tensor_method.cache_clear()
print(torch.Tensor.to in trace_rules.get_tensor_method(), type(torch.Tensor.to).__name__)
"""


def test_graphs_are_the_same_where_dynamo_is_loaded_after_the_recorder(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    perfwrap = ["-m", "perfwrap", "run", "--no-monitors", "--no-report", "--out", str(tmp_path / "run"), "--"]
    bare, recorded = (
        subprocess.check_output([sys.executable, *words, str(script)], text=True, cwd=tmp_path).splitlines()
        for words in ([], [*perfwrap, sys.executable])
    )
    assert recorded[0] == bare[0]
    assert recorded[1] == bare[1] == "True method_descriptor"
