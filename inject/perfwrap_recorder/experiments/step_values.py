"""Writes the loss and the parameters after each step, to compare two runs; seeds the random generators before.

For runs whose steps are not timed. The generators of Python, NumPy and torch get their seed when they are imported;
a program that seeds them itself replaces it. Another seed than 0 is given once more before the first batch is fetched
in this process, so that the items differ, and not the parameters at the start.

With a perturbation, each parameter in single precision is multiplied by 1 + 1e-6 or 1 - 1e-6 when its optimizer is
created, at random: how far this grows is how sensitive the program is to rounding.

Persistent workers save the number that the program draws from its generator for each new start of workers. It is drawn
here in place of the program, so that its other random numbers stay the same with and without persistent workers.

The parameters are those of the optimizers, then the running statistics of batch normalisations, and the parameters of
copied modules, which average weights. Facts: ``values/N`` of step N, from 1: the sum of its losses, the checksum of all
parameters, their norm, and their products with fixed vectors, separated by U+001F. The elements are dealt out to the
products, one after the other. An empty text stands for what cannot be read.
``values/draws``: how many numbers were drawn for persistent workers.
``values/items``: ``random`` if fetching a batch in this process drew a number from one of those generators, else
``fixed``, also of an iterable data set, which workers share out instead; none without a fetch.
"""

from __future__ import annotations

import random
import sys
from weakref import ref
from zlib import crc32

from perfwrap_recorder import guard, on_import
from perfwrap_recorder.experiments import backward_calls
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import tensor_access

FIXED, RANDOM = "fixed", "random"

PRODUCTS = 64
"""The number of products: few wrong elements change only a few of them."""
PERTURBATION = 1e-6
MAX_STEPS = 200
"""More steps are not written."""

_later = []  # the seed to give before the first fetch
_perturbation = []  # the seed of the perturbation
_draws = []  # one element for each number that was drawn for persistent workers
_optimizers = []  # references to them, in the order of their creation
_modules = []  # weak references to batch normalisations and to copies of modules, in the order of their creation


def prepare(seed, perturbation=0):
    """Seed Python's generator now, and the others when they are there; 0 for no perturbation."""
    _later[:] = [seed] if seed else []
    _perturbation[:] = [perturbation] if perturbation else []
    random.seed(seed)
    on_import.after("numpy", guard.protect("seed", lambda numpy: numpy.random.seed(seed)))
    on_import.after("torch", guard.protect("seed", lambda torch: torch.manual_seed(seed)))


def _seed_again(torch):
    numpy = sys.modules.get("numpy")
    for seed in _later:
        random.seed(seed)
        torch.manual_seed(seed)
        if numpy is not None:
            numpy.random.seed(seed)
    _later.clear()


def install(torch):
    """Notice the losses, the optimizers, the batch normalisations and the copies of modules."""
    backward_calls.keep_losses()
    begin = guard.protect("optimizer", lambda optimizer: _begin(torch, optimizer))
    wrapping.patch(torch, torch.optim.Optimizer, "__init__", _make(begin), over=True)
    normalisation = torch.nn.modules.batchnorm._NormBase
    wrapping.patch(torch, normalisation, "__init__", _make(lambda module: _note(module, False)), over=True)
    # copy.deepcopy calls __setstate__.
    copied = _make(lambda module: _note(module, True))
    wrapping.patch(torch, torch.nn.Module, "__setstate__", copied, over=True)
    fetchers = torch.utils.data._utils.fetch
    for kind, read in (
        ("_MapDatasetFetcher", _read_generators),
        ("_IterableDatasetFetcher", lambda torch: None),
    ):
        wrapping.patch(torch, getattr(fetchers, kind), "fetch", _make_fetch(torch, read), over=True)
    iterator = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    wrapping.patch(torch, iterator, "_reset", _make_reset(torch), over=True)


def _begin(torch, optimizer):
    """Notice an optimizer, and perturb its parameters if that was requested."""
    _optimizers.append(optimizer)
    for seed in _perturbation:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        tensor_access.calculate(torch, _perturb, torch, parameters, seed)


def _perturb(torch, parameters, seed):
    """Change parameters by a millionth, with random signs that are the same in each rank."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        tensor = parameter.data  # without a new version, which a graph would notice
        is_dense = tensor.layout is torch.strided and tensor.device.type != "meta"
        if not is_dense or not tensor.is_floating_point():
            continue
        pieces = tensor.view(-1).split(tensor_access.ALONE) if tensor.is_contiguous() else [tensor]
        for piece in pieces:
            signs = torch.randint(0, 2, piece.shape, generator=generator).mul_(2).sub_(1)
            piece.mul_(signs.double().mul_(PERTURBATION).add_(1).to(piece.device, piece.dtype))


def _note(module, is_copy):
    _modules.append((ref(module), is_copy))


def _make(note):
    def make(original, _):
        def wrapper(self, *arguments, **options):
            result = original(self, *arguments, **options)
            note(self)
            return result

        return wrapper

    return make


def _make_fetch(torch, read_generators):
    read = guard.protect("random_items", read_generators)
    seed_again = guard.protect("seed", _seed_again)
    found = []  # FIXED, then RANDOM

    def make(original, _):
        def wrapper(*arguments, **options):
            if _later:
                seed_again(torch)
            if RANDOM in found:
                return original(*arguments, **options)
            before = read(torch)
            result = original(*arguments, **options)
            now = FIXED if read(torch) == before else RANDOM
            if now not in found:
                found.append(now)
                journal.fact("values/items", now)
            return result

        return wrapper

    return make


def _make_reset(torch):
    draw = guard.protect("worker_seed", lambda loader: _draw(torch, loader))

    def make(original, _):
        def wrapper(self, loader, first_iter=False):
            if not first_iter:
                draw(loader)
            return original(self, loader, first_iter)

        return wrapper

    return make


def _draw(torch, loader):
    """Draw the number that new workers would begin with."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    _draws.append(None)
    journal.fact("values/draws", len(_draws))


def _read_generators(torch):
    """Return the states of the generators of Python, NumPy and torch."""
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else ("", "")
    return random.getstate(), str(list(drawn[1])), drawn[2:], torch.get_rng_state().tolist()


def note(torch, step):
    """Write the values after a step."""
    if step > MAX_STEPS:
        return
    loss = guard.run("trial_loss", backward_calls.read_losses)
    values = [repr(loss) if loss is not None else "", *_read_parameters(torch)]
    journal.fact("values/%d" % step, "\x1f".join(values))


def _read_parameters(torch):
    """Return the checksum, the norm and the products; empty texts if they cannot be read unobserved."""
    parameters = _parameters()
    found = (
        tensor_access.calculate(torch, _sums, torch, [*parameters, *_others(parameters)])
        if parameters
        else None
    )
    return ["", "", ""] if found is None or found is tensor_access.LATER else found


def _sums(torch, tensors):
    """Return the checksum, the norm and the products, which weigh each element by its place; None for sparse ones."""
    total, square, place = 0, 0.0, 0
    products = torch.zeros(PRODUCTS, dtype=torch.float64)
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return None
        here = tensor.detach().to("cpu", copy=True).contiguous().flatten()
        total = crc32(here.view(torch.uint8).numpy(), total)
        if not here.dtype.is_floating_point:
            continue
        wide = here.double()
        weights = torch.arange(place, place + wide.numel(), dtype=torch.float64).mul_(0.7).cos_()
        square += float(wide.square().sum())
        begin = torch.zeros(place % PRODUCTS, dtype=torch.float64)
        end = torch.zeros(-(place + wide.numel()) % PRODUCTS, dtype=torch.float64)
        products += torch.cat([begin, wide * weights, end]).view(-1, PRODUCTS).sum(0)
        place += wide.numel()
    return ["%08x" % total, repr(square**0.5), " ".join("%.12g" % each for each in products.tolist())]


def _parameters():
    """Return the parameters of all optimizers, each once, in the order of the optimizers and their groups."""
    found = {}
    for optimizer in _optimizers:
        for group in optimizer.param_groups:
            found.update((id(parameter), parameter) for parameter in group["params"])
    return list(found.values())


def _others(parameters):
    """Return the tensors of the noticed modules that are no parameters of an optimizer, each once."""
    found, known = {}, {id(parameter) for parameter in parameters}
    for reference, is_copy in _modules:
        module = reference()
        if module is None:
            continue
        tensors = [module._buffers.get(name) for name in ("running_mean", "running_var")]
        tensors += module._parameters.values() if is_copy else ()
        found.update((id(each), each) for each in tensors if each is not None and id(each) not in known)
    return list(found.values())
