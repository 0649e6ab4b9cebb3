"""Functions of torch inside objects: pickled, deep-copied, saved and sent to spawned and forkserver workers."""

import copy
import functools
import io
import pickle

import torch
from moments import check, checks, digest, report, train, watch
from torch.utils.data import DataLoader, Dataset, default_collate

torch.optim.SGD([torch.ones(1)])  # The first one of a class gives it another step function.
METHODS = (
    "to",
    "cpu",
    "tolist",
    "item",
    "copy_",
    "nonzero",
    "masked_select",
    "numpy",
    "backward",
    "half",
    "clone",
    "cuda",
    "__bool__",
    "__float__",
)
FUNCTIONS = (
    torch.nonzero,
    torch.save,
    torch.nn.functional.cross_entropy,
    torch.nn.utils.clip_grad_norm_,
    torch.equal,
    torch.stack,
    torch.utils.data.default_collate,
    torch.optim.SGD,
    torch.optim.SGD.step,
    torch.autograd.grad,
    torch.optim.Optimizer.zero_grad,
    torch.nn.Module.__call__,
    torch.load,
    torch.as_tensor,
)


class Squares(Dataset):
    """Holds functions of torch as its transforms."""

    def __init__(self):
        self.transform = functools.partial(torch.Tensor.to, dtype=torch.float64)
        self.listed, self.selected = torch.Tensor.tolist, torch.Tensor.masked_select

    def __len__(self):
        """Eight items."""
        return 8

    def __getitem__(self, index):
        """Transform a square."""
        square = torch.tensor([float(index), index * index])
        return self.transform(square), torch.tensor(self.listed(square)), self.selected(square, square >= 0)


def pickled(thing):
    """Say how a thing comes back from pickle, copy and torch.save."""
    found = []
    for way in (lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy, copy.copy, saved):
        try:
            back = way(thing)
            found.append("same" if back is thing else type(back).__name__)
        except Exception as error:
            found.append(f"{type(error).__name__} {str(error)[:70]}")
    return found


def saved(thing):
    """Return what torch.save and torch.load make of it."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@check
def methods():
    """Methods of Tensor, alone and in a partial."""
    return "\n    ".join(
        f"{n} {pickled(getattr(torch.Tensor, n))} {pickled(functools.partial(getattr(torch.Tensor, n)))}"
        for n in METHODS
    )


@check
def functions():
    """Functions that perfwrap may have an interest in."""
    return "\n    ".join(f"{f.__qualname__} {pickled(f)}" for f in FUNCTIONS)


@check
def kept():
    """A data set that was made before the steps."""
    return pickled(data), [digest(part) for part in default_collate([data[2], data[3]])]


def loaded(context):
    """Say what a worker of that kind gives."""
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context=context)
    return [digest(part) for batch in loader for part in batch]


def workers():
    """Loaders with workers of each kind, of a data set that was made before the steps."""
    return [loaded(context) for context in ("fork", "spawn", "forkserver")]


data = Squares()
if __name__ == "__main__":
    watch(2000, 250)
    checks[:] = [workers]
    before = report("workers, after 2000 steps", {"workers": ""})
    train(1000)
    report("workers, at the end", before)
    print("steps made:", 3000)
