"""Errors that a program meets in PyTorch have the traceback and variables of a bare run, in detail and in pauses."""

from __future__ import annotations

import sys

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="an error that is raised again keeps its frames"),
]

PROGRAM = """
import gc, re, traceback
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
lin = nn.Linear(2, 2)
opt = torch.optim.SGD(lin.parameters(), 0.1)
two = torch.ones(2)


def step():
    opt.zero_grad()
    lin(torch.ones(1, 2)).sum().backward()
    opt.step()


class Bad(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError(index)


class BadIter(IterableDataset):
    def __iter__(self):
        yield torch.ones(2)
        raise ValueError("bad iter")


class BadForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x).view(7)


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise OSError("in backward")


class Unpicklable:
    def __reduce__(self):
        raise TypeError("no pickling")


def bad_collate(batch):
    raise RuntimeError("bad collate")


def closure():
    raise ArithmeticError("closure")


def twice():
    loss = (lin(torch.ones(1, 2)) ** 2).sum()
    loss.backward()
    loss.backward()


def with_hook(register):
    hook = register(lambda *_: 1 / 0)
    try:
        step()
    finally:
        hook.remove()


def not_finite():
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), float("inf"))
    nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)


cases = (
    lambda: two.to(dtype="x"),
    lambda: two.to(torch.quint8),
    lambda: two.to(torch.float32, dtype=3),
    lambda: two.to("nonsense"),
    lambda: two.copy_(torch.ones(3)),
    lambda: two.item(),
    lambda: bool(two),
    lambda: torch.ones(2, requires_grad=True).numpy(),
    lambda: two.equal(),
    lambda: format(two, ".2f"),
    lambda: next(iter(DataLoader(Bad(), batch_size=4))),
    lambda: next(iter(DataLoader(Bad(), batch_size=4, num_workers=1))),
    lambda: list(DataLoader(BadIter(), batch_size=2)),
    lambda: next(iter(DataLoader([1, 2], collate_fn=bad_collate))),
    lambda: next(iter(DataLoader([1, 2], collate_fn=bad_collate, num_workers=1))),
    lambda: BadForward()(torch.ones(1, 2)),
    lambda: torch.utils.checkpoint.checkpoint(BadForward(), torch.ones(1, 2), use_reentrant=False),
    lambda: torch.jit.trace(BadForward(), torch.ones(1, 2)),
    lambda: torch.compile(BadForward(), backend="eager")(torch.ones(1, 2)),
    lambda: torch.func.vmap(lambda x: x.item())(torch.ones(3)),
    lambda: lin(torch.ones(1, 3)),
    lambda: lin.to("nonsense"),
    lambda: lin.load_state_dict({"x": 1}),
    lambda: BadBackward.apply(torch.ones(2, requires_grad=True)).sum().backward(),
    lambda: torch.ones(1).backward(),
    lambda: torch.autograd.grad(torch.ones(1), lin.parameters()),
    lambda: opt.step(closure),
    lambda: opt.zero_grad(1, 2, 3),
    lambda: torch.optim.SGD([], 0.1),
    lambda: torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 1 / 0),
    lambda: torch.amp.GradScaler("cpu").step(opt),
    lambda: with_hook(lin.register_forward_hook),
    lambda: with_hook(opt.register_step_pre_hook),
    lambda: torch.save(Unpicklable(), "/dev/null"),
    lambda: torch.save(lin.state_dict(), "/nonexistent/x.pt"),
    lambda: torch.load("/nonexistent/x.pt"),
    lambda: torch.distributed.all_reduce(torch.ones(1)),
    lambda: torch.set_num_threads(-1),
    twice,
    not_finite,
)
for steps in (3, 600):
    for _ in range(steps):
        step()
    for wrong in cases:
        try:
            wrong()
        except BaseException as error:
            text = re.sub("0x[0-9a-f]+|pid [0-9]+", "", traceback.format_exc())
            print(text.replace(os.getcwd(), ""))
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            print([sorted(frame.f_locals) for frame in frames[1:]])
            del frames
        else:
            print("no error")
        gc.collect()  # not in a later worker, where the end of a loader's iterator is an error
"""


def test_errors_have_the_same_traceback(same) -> None:
    done = same(PROGRAM)
    assert done.stdout.count("Traceback") > 80
    assert "no error" not in done.stdout
