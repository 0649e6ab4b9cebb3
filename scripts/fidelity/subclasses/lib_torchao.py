"""torchao's quantised tensor subclasses and 8-bit optimizers: moved, saved, answered with, trained beside."""

import copy
import io
import logging
import warnings

import torch
from moments import check, digest, kind, watch
from torch import nn

warnings.filterwarnings("ignore")
torch.compiler.set_stance("force_eager")  # Its optimizers would compile for minutes.
logging.disable(logging.WARNING)
from torchao import quantization as q  # noqa: E402
from torchao.optim import Adam8bit, AdamW4bit, AdamWFp8  # noqa: E402

CONFIGS = {
    name: getattr(q, name)
    for name in (
        "Int8WeightOnlyConfig",
        "Int8DynamicActivationInt8WeightConfig",
        "Float8WeightOnlyConfig",
        "IntxWeightOnlyConfig",
        "Int4WeightOnlyConfig",
        "Int8DynamicActivationIntxWeightConfig",
    )
    if hasattr(q, name)
}
MOVES = {
    "to": lambda m: m.to("cpu"),
    "cpu": lambda m: m.cpu(),
    "dtype": lambda m: m.to(torch.bfloat16),
    "copy": copy.deepcopy,
    "half": lambda m: m.half(),
    "none": lambda m: m,
}


def parts(tensor):
    """Return the classes and digests of a subclass' parts, all the way down."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return digest(tensor)
    return kind(tensor), [parts(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]


def quantised(config):
    """Return a small quantised model."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    q.quantize_(model, config())
    return model


@check
def moves():
    """What a quantised weight is after each move, and what the model answers."""
    found = []
    for name, config in CONFIGS.items():
        for move, call in MOVES.items():
            try:
                model = call(quantised(config))
                dtype = model[0].weight.dtype
                answer = digest(model(torch.ones(2, 64, dtype=dtype)))
                found.append(f"{name} {move} {kind(model[0].weight)} {parts(model[0].weight)} {answer}")
            except Exception as error:
                found.append(
                    f"{name} {move} {type(error).__name__} {(str(error).splitlines() or [''])[0][:90]}"
                )
    return "\n    ".join(found)


@check
def saves():
    """States that are saved, loaded and assigned."""
    found = []
    for name, config in CONFIGS.items():
        try:
            file = io.BytesIO()
            torch.save(quantised(config).state_dict(), file)
            file.seek(0)
            state = torch.load(file, weights_only=False)
            fresh = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
            fresh.load_state_dict(state, assign=True)
            found.append(f"{name} {parts(fresh[0].weight)} {digest(fresh(torch.ones(2, 64)))}")
        except Exception as error:
            found.append(f"{name} {type(error).__name__} {(str(error).splitlines() or [''])[0][:90]}")
    return "\n    ".join(found)


@check
def optimizers():
    """Optimizers whose states are subclasses."""
    found = []
    for make in (Adam8bit, AdamW4bit, AdamWFp8):
        torch.manual_seed(5)
        layer = nn.Linear(64, 128)
        optimizer = make(layer.parameters(), lr=0.01)
        try:
            layer(torch.ones(2, 64)).sum().backward()
            optimizer.step()
            found.append(
                f"{make.__name__} {digest(layer.weight)} {[kind(v) for v in optimizer.state[layer.weight].values()]}"
            )
        except Exception as error:
            found.append(f"{make.__name__} {type(error).__name__}")
    return "\n    ".join(found)


watch(1200, 600, counted=False)
