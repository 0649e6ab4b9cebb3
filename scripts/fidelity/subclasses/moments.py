"""Short training steps, and checks before, in the midst of and after them that must say the same each time.

A program of this folder marks its checks with ``check`` and calls ``watch()``. A check returns what is to be printed;
what it raises is printed, too. The later results of a check are printed only if they differ from the first one.
"""

import hashlib

import torch
import torch._dynamo  # noqa: F401  the recorder's longest pauses wait for it

checks = []
made = 0


def check(function):
    """Have ``watch`` run that function at all moments."""
    checks.append(function)
    return function


def digest(tensor):
    """Return the kind, the shape and a digest of the bits of a tensor without a class of its own."""
    plain = tensor.detach().contiguous().flatten()
    bits = bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""
    kind = str(tensor.dtype).partition(".")[2]
    return f"{type(tensor).__name__} {kind} {tuple(tensor.shape)} {hashlib.blake2b(bits, digest_size=6).hexdigest()}"


def kind(thing):
    """Return the full name of a thing's class."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def say(function):
    """Return what a check says, with the same random numbers each time."""
    torch.manual_seed(7)
    try:
        return str(function())
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def report(moment, before):
    """Print which checks say something else than before; return what they say."""
    now = {function.__name__: say(function) for function in checks}
    odd = {name: text for name, text in now.items() if before and text != before[name]}
    print(
        moment,
        *(f"\n    {name}: {text}" for name, text in odd.items()),
        "" if odd or not before else "as before",
    )
    return now


def train(steps, between=None, every=300):
    """Make that many steps of a fraction of a millisecond each, and say the digest of the weights."""
    global made
    made += steps
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(4, 8), torch.randn(4, 2)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if between and step % every == 0 and step < steps:
            between(step)
    return " ".join(digest(parameter) for parameter in model.parameters())


def watch(steps=3000, every=300, counted=True):
    """Run all checks before, in the midst of and after the steps; say how many those were where no check makes any."""
    before = {function.__name__: say(function) for function in checks}
    for name, text in before.items():
        print(f"{name}: {text}")
    print(train(steps, lambda step: report(f"step {step}", before), every))
    report("after", before)
    if counted:
        print("steps made:", made)
