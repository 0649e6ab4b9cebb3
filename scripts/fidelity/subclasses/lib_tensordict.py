"""TensorDict, tensorclass, memory-mapped tensors and modules over them: moved, stacked, saved, trained."""

import copy
import pickle
import tempfile
import warnings

import torch
from moments import check, digest, kind, watch
from tensordict import LazyStackedTensorDict, MemoryMappedTensor, TensorDict, TensorDictParams, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential

warnings.filterwarnings("ignore")


@tensorclass
class Pair:
    """Two tensors."""

    one: torch.Tensor
    two: torch.Tensor


def dictionary():
    """Return one with a nest."""
    return TensorDict(
        {"a": torch.arange(6.0).reshape(3, 2), "in": {"b": torch.ones(3, dtype=torch.int64)}}, batch_size=[3]
    )


MAKERS = {
    "dict": dictionary,
    "lazy": lambda: LazyStackedTensorDict(dictionary(), dictionary()),
    "params": lambda: TensorDictParams(TensorDict({"w": torch.ones(3, 2)}, [3])),
    "class": lambda: Pair(torch.ones(3, 2), torch.zeros(3), batch_size=[3]),
    "mapped": lambda: MemoryMappedTensor.from_tensor(torch.arange(3.0)),
}
CALLS = {
    "to": lambda t: t.to(torch.float64),
    "to cpu": lambda t: t.to("cpu"),
    "cpu": lambda t: t.cpu(),
    "clone": lambda t: t.clone(),
    "torch.clone": torch.clone,
    "stack": lambda t: torch.stack([t, t]),
    "cat": lambda t: torch.cat([t, t]),
    "gather": lambda t: t[:2],
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "like": torch.zeros_like,
    "split": lambda t: t.split(1)[0],
    "copy_": lambda t: t.clone().copy_(t),
    "double": lambda t: t.double(),
    "unbind": lambda t: torch.unbind(t)[0],
    "tolist": lambda t: t.tolist(),
    "squeeze": lambda t: torch.unsqueeze(t, 0),
    "equal": lambda t: (t == t).all(),
    "masked": lambda t: t.masked_select(torch.tensor([True, False, True])),
    "numpy": lambda t: t.numpy(),
    "item": lambda t: t[0].item(),
    "nonzero": lambda t: t.nonzero(),
    "full": lambda t: torch.full_like(t, 2.0),
}


def described(value):
    """Say the class, the device and all tensors."""
    if isinstance(value, torch.Tensor):
        return f"{kind(value)} {digest(value.detach().as_subclass(torch.Tensor))}"
    if hasattr(value, "batch_size"):
        leaves = value.to_tensordict().flatten_keys(".")
        return f"{kind(value)} {value.device} {[(key, described(leaf)) for key, leaf in sorted(leaves.items())]}"
    return f"{kind(value)} {value}"


@check
def calls():
    """What each call gives for each kind."""
    found = []
    for name, make in MAKERS.items():
        for call_name, call in CALLS.items():
            try:
                found.append(f"{name} {call_name} {described(call(make()))}")
            except Exception as error:
                found.append(
                    f"{name} {call_name} {type(error).__name__} {(str(error).splitlines() or [''])[0][:70]}"
                )
    return "\n    ".join(found)


@check
def learns():
    """Modules over dictionaries learn; parameters are swapped by a dictionary."""
    model = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(2, 4), ["a"], ["h"]),
        TensorDictModule(torch.nn.Linear(4, 1), ["h"], ["out"]),
    )
    optimizer = torch.optim.Adam(model.to("cpu").parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(dictionary())["out"].sum().backward()
        optimizer.step()
    state = TensorDict.from_module(model)
    with state.data.clone().zero_().to_module(model):
        zero = model(dictionary())["out"].sum().item()
    with tempfile.TemporaryDirectory() as folder:
        state.data.memmap(folder)
        loaded = TensorDict.load_memmap(folder)
    return zero, described(loaded), [digest(p) for p in model.parameters()]


watch(1500, 300, counted=False)
