"""bitsandbytes on the CPU: its parameters and layers of 4 and 8 bits are moved, copied, saved and answered with."""

import copy
import io
import warnings

import torch
from moments import check, digest, kind, watch
from torch import nn

warnings.filterwarnings("ignore")
import bitsandbytes as bnb  # noqa: E402

MAKERS = {
    "4bit": lambda: bnb.nn.Linear4bit(64, 64, compute_dtype=torch.float32),
    "nf4": lambda: bnb.nn.LinearNF4(64, 64),
    "fp4": lambda: bnb.nn.LinearFP4(64, 64),
    "8bit": lambda: bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False),
    "embedding": lambda: bnb.nn.Embedding4bit(16, 64),
    "embedding 8bit": lambda: bnb.nn.Embedding8bit(16, 64),
}
MOVES = {
    "to": lambda m: m.to("cpu"),
    "cpu": lambda m: m.cpu(),
    "twice": lambda m: m.to("cpu").to("cpu"),
    "copy": lambda m: copy.deepcopy(m.to("cpu")),
    "half": lambda m: m.to("cpu").half(),
    "bfloat16": lambda m: m.to(torch.bfloat16),
    "both": lambda m: m.to("cpu", torch.bfloat16),
    "outer": lambda m: nn.Sequential(m).to("cpu")[0],
}


@check
def moves():
    """What each layer's weight is after each move, and what it answers."""
    found = []
    for name, make in MAKERS.items():
        for move, call in MOVES.items():
            torch.manual_seed(5)
            try:
                layer = call(make())
                weight = layer.weight
                given = torch.arange(4) if "embedding" in name else torch.ones(2, 64)
                state = getattr(weight, "quant_state", None)
                answer = digest(layer(given).float())
                packed = getattr(weight, "bnb_quantized", "")
                found.append(
                    f"{name} {move} {kind(weight)} {digest(weight.data)} {packed} {kind(state)} {answer}"
                )
            except Exception as error:
                found.append(
                    f"{name} {move} {type(error).__name__} {(str(error).splitlines() or [''])[0][:90]}"
                )
    return "\n    ".join(found)


@check
def saves():
    """The state of a layer of 4 bits, saved and read."""
    layer = MAKERS["nf4"]().to("cpu")
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    weight = bnb.nn.Params4bit.from_prequantized(
        state["weight"], {k: v for k, v in state.items() if "." in k}, device="cpu"
    )
    chunks = torch.chunk(layer.weight, 2)
    return (
        {k: digest(v) for k, v in state.items()},
        kind(weight),
        digest(weight.data),
        [kind(c) for c in chunks],
    )


@check
def learns():
    """An adapter beside a frozen layer learns."""
    base, adapter = MAKERS["4bit"]().to("cpu").requires_grad_(False), nn.Linear(64, 64)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (base(torch.ones(2, 64)) + adapter(torch.ones(2, 64))).square().mean().backward()
        optimizer.step()
    return digest(adapter.weight)


watch(1200, 400, counted=False)
