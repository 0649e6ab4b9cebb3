"""Notes what output and files do not show: imports in order, random states, every weight after every step.

It is on the PYTHONPATH of each run that ``fidelity.py`` compares, bare or wrapped, so that both are changed in the same
way. Each process that ends normally writes its notes to one JSON file in ``FIDELITY_NOTES``.
Python's, numpy's and torch's random numbers start from ``FIDELITY_SEED``, for scripts that do not seed them.
Runs on Python 3.8 and imports only the standard library by itself.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import random
import sys
import tempfile

FOLDER = os.environ["FIDELITY_NOTES"]
SEED = int(os.environ["FIDELITY_SEED"])
STARTED = os.getpid()
WATCHED = ("numpy", "torch", "torch.optim.optimizer")
weights = hashlib.blake2b(digest_size=16)
steps = 0


class Watch:
    """Calls ``loaded`` when one of the watched modules has been imported; the import itself is not changed."""

    busy = False

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the other finders have, with a loader that calls ``loaded`` at its end."""
        if name not in WATCHED or self.busy:
            return None
        self.busy = True
        try:
            spec = next(
                filter(None, (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)), None
            )
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                loaded(module)

            spec.loader.exec_module = exec_module
        return spec


def loaded(module) -> None:
    """Seed a library's random numbers, or register a hook of torch for each step of an optimizer."""
    if module.__name__ == "torch.optim.optimizer":
        if hasattr(module, "register_optimizer_step_post_hook"):
            module.register_optimizer_step_post_hook(after_step)
    elif module.__name__ == "numpy":
        module.random.seed(SEED)
    else:
        module.manual_seed(SEED)


def after_step(optimizer, arguments, named) -> None:
    """Add the bits of all parameters to the digest; subclasses, such as DTensors, are left out."""
    global steps
    torch = sys.modules["torch"]
    steps += 1
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            plain = parameter.detach()
            if type(plain) is torch.Tensor and plain.layout is torch.strided:
                weights.update(memoryview(plain.cpu().contiguous().flatten().view(torch.uint8).numpy()))


def random_states() -> dict:
    """Return a digest of the state of each random number generator that the process has."""
    states = {"python": repr(random.getstate()).encode()}
    if "numpy.random" in sys.modules:
        states["numpy"] = repr(sys.modules["numpy.random"].get_state()).encode()
    if "torch.random" in sys.modules:
        states["torch"] = bytes(sys.modules["torch.random"].get_rng_state().tolist())
    return {name: hashlib.blake2b(state, digest_size=16).hexdigest() for name, state in states.items()}


def write() -> None:
    """Write one file about this process; forked children, which inherit the notes, write none."""
    if os.getpid() != STARTED:
        return
    modules = list(sys.modules)
    note = {
        "argv": sys.argv,
        "rank": os.environ.get("RANK", ""),
        "modules": modules,
        "random": random_states(),
        "steps": steps,
        "weights": weights.hexdigest(),
    }
    handle, _ = tempfile.mkstemp(".json", "", FOLDER)
    with os.fdopen(handle, "w") as file:
        json.dump(note, file)


random.seed(SEED)
sys.meta_path.insert(0, Watch())
atexit.register(write)
