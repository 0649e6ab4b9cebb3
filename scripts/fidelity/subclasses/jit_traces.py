"""The first and later traces and scripts of TorchScript, with their graphs; the word "script" turns the order."""

import io
import re
import sys
import warnings

import torch
from moments import check, digest, watch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)


class Mover(nn.Module):
    """Moves in its forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        """Copy and come back."""
        kept = torch.zeros(2, 4).copy_(self.layer(x)).to(torch.float64)
        return kept.to(torch.float32).cpu()


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 4)), lambda: torch.ones(2, 4)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2)), lambda: torch.tensor([[0, 1]])),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
        lambda: torch.ones(2, 1, 5, 5),
    ),
    "mover": (Mover, lambda: torch.ones(2, 4)),
    "lstm": (lambda: nn.LSTM(4, 4), lambda: torch.ones(2, 1, 4)),
}


def saved(module):
    """Return a scripted module after it was saved and loaded."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def checked(name, how):
    """Add a check that makes a model and turns it into TorchScript."""

    def result():
        make, inputs = MODELS[name]
        model = make()
        turned = torch.jit.trace(model, inputs()) if how == "trace" else torch.jit.script(model)
        answer = saved(turned)(inputs())
        answer = answer[0] if isinstance(answer, tuple) else answer
        graphs = re.sub(r"___torch_mangle_\d+\.", "", f"{turned.inlined_graph}\n{turned.code}")
        return f"{type(turned).__name__} {digest(answer)}\n{graphs}"

    result.__name__ = f"{how}, {name}"
    check(result)


for how in ("trace", "script")[:: -1 if "script" in sys.argv else 1]:
    for name in MODELS:
        checked(name, how)


@check
def functions():
    """Functions with moves, traced and scripted."""
    traced = torch.jit.trace(lambda x: x.to(torch.float64).cpu() + 1, torch.ones(2))
    return str(traced.graph), digest(traced(torch.ones(3)))


watch(1200, 400)
