"""A stack names the user's innermost line and what was at work."""

from __future__ import annotations

import pytest
from perfwrap.sources.stack_samples.frames import HIDDEN, INSTALLED, USERS, Frame, columns, sort_of

TORCH = "/env/lib/python3.11/site-packages/torch/"
LIBRARY = "/usr/lib/python3.11/"


COMPILED = "chfvpmnfz65stldetsye3pwp776mn363pjywvwyqcl4qt5cyn7zl.py"


@pytest.mark.parametrize(
    ("file", "sort"),
    [
        ("/home/me/train.py", USERS),
        ("train.py", USERS),
        ("<string>", HIDDEN),
        ("<perfwrap importlib._bootstrap>", HIDDEN),
        ("", HIDDEN),
        (f"/tmp/torchinductor_me/hf/{COMPILED}", HIDDEN),
        (f"/home/me/aa/{COMPILED}", USERS),
        (TORCH + "nn/modules/module.py", HIDDEN),
        ("torch/nn/modules/module.py", HIDDEN),
        (LIBRARY + "threading.py", HIDDEN),
        ("multiprocessing/queues.py", HIDDEN),
        ("/env/lib/python3.11/site-packages/transformers/trainer.py", INSTALLED),
        ("/env/bin/torchrun", HIDDEN),
        ("/home/me/run_training", USERS),
        ("libtorch_cpu.so", HIDDEN),
    ],
)
def test_files_are_distinguished(file: str, sort: int) -> None:
    assert sort_of(file) == sort


def test_the_users_innermost_line_and_the_innermost_phase_count() -> None:
    found = columns(
        [
            Frame("main", "/home/me/train.py", 20),
            Frame("_BaseDataLoaderIter.__next__", TORCH + "utils/data/dataloader.py", 733),
            Frame("_MapDatasetFetcher.fetch", TORCH + "utils/data/_utils/fetch.py", 54),
            Frame("Data.__getitem__", "/home/me/data.py", 9),
            Frame("sleep", LIBRARY + "time.py", 1),
        ]
    )
    assert (found["operation"], found["file"], found["line"]) == ("fetch", "/home/me/data.py", 9)
    assert found["stack"].startswith("main (/home/me/train.py:20);")


def test_a_forked_workers_parent_is_not_its_line() -> None:
    parent = [
        Frame("main", "/home/me/train.py", 20),
        Frame("DataLoader.__iter__", TORCH + "utils/data/dataloader.py", 1),
    ]
    loop = Frame("_worker_loop", TORCH + "utils/data/_utils/worker.py", 5)
    waiting = columns([*parent, loop, Frame("Queue.get", LIBRARY + "multiprocessing/queues.py", 113)])
    assert (waiting["operation"], waiting["file"]) == ("idle", None)
    fetch = Frame("fetch", TORCH + "utils/data/_utils/fetch.py", 54)
    making = columns([*parent, loop, fetch, Frame("decode", "/home/me/data.py", 9)])
    assert (making["operation"], making["line"]) == ("fetch", 9)


def test_a_module_that_is_called_again_for_the_backward_pass_is_a_recomputation() -> None:
    backward = [Frame("main", "/home/me/train.py", 20), Frame("backward", TORCH + "_tensor.py", 1)]
    again = [
        Frame("_checkpoint_hook.__init__.<locals>.unpack_hook", TORCH + "utils/checkpoint.py", 1183),
        Frame(
            "_checkpoint_without_reentrant_generator.<locals>.recompute_fn",
            TORCH + "utils/checkpoint.py",
            1688,
        ),
        Frame("Module._call_impl", TORCH + "nn/modules/module.py", 1),
        Frame("Block.forward", "/home/me/model.py", 9),
    ]
    found = columns([*backward, *again])
    assert (found["operation"], found["line"]) == ("recompute", 9)
    reentrant = Frame("CheckpointFunction.backward", TORCH + "utils/checkpoint.py", 314)
    assert columns([*backward, reentrant, *again[2:]])["operation"] == "recompute"
    inner = Frame("backward", TORCH + "autograd/__init__.py", 354)
    assert columns([*backward, reentrant, inner])["operation"] == "backward"
    assert columns(again[2:])["operation"] == "forward"


def test_code_in_a_closure_is_the_programs_and_not_the_optimizers() -> None:
    step = [
        Frame("main", "/home/me/train.py", 20),
        Frame("Optimizer.profile_hook_step.<locals>.wrapper", TORCH + "optim/optimizer.py", 523),
        Frame("_use_grad_for_differentiable.<locals>._use_grad", TORCH + "optim/optimizer.py", 80),
        Frame("Adam.step", TORCH + "optim/adam.py", 237),
    ]
    update = Frame("_single_tensor_adam", TORCH + "optim/adam.py", 400)
    assert columns([*step, update])["operation"] == "optimizer"
    closure = [*step, Frame("main.<locals>.closure", "/home/me/train.py", 14)]
    assert columns(closure)["operation"] is None
    assert columns([*closure, Frame("backward", TORCH + "_tensor.py", 1)])["operation"] == "backward"
    own = [*step[:2], Frame("Lion.step", "/home/me/lion.py", 30)]
    assert columns(own)["operation"] == "optimizer"


def test_the_programs_profiler_is_no_python_of_the_programs() -> None:
    step = Frame("profile.step", TORCH + "profiler/profiler.py", 1222)
    handler = Frame("ready", "/home/me/train.py", 9)
    averages = Frame("EventList.key_averages", TORCH + "autograd/profiler_util.py", 437)
    found = columns([Frame("main", "/home/me/train.py", 20), step, handler, averages])
    assert (found["operation"], found["line"]) == ("profiler", 9)


@pytest.mark.parametrize(
    ("caller", "function", "operation"),
    [
        ("torch/optim/optimizer.py", "record_function.__enter__", "optimizer"),
        ("torch/optim/optimizer.py", "__exit__", "optimizer"),
        ("/home/me/train.py", "profile.__exit__", "profiler"),
        ("/home/me/train.py", "record_function.__enter__", None),
    ],
)
def test_names_that_torch_gives_to_its_work_are_no_profiler(
    caller: str, function: str, operation: str | None
) -> None:
    file = TORCH.removesuffix("torch/") + caller if caller.startswith("torch/") else caller
    outer = Frame("Optimizer.profile_hook_step.<locals>.wrapper", file, 516)
    name = Frame(function, TORCH + "autograd/profiler.py", 800)
    assert columns([Frame("main", "/home/me/train.py", 20), outer, name])["operation"] == operation


def test_a_transform_that_is_a_module_is_part_of_making_the_batch() -> None:
    fetch = Frame("_MapDatasetFetcher.fetch", "/x/site-packages/torch/utils/data/_utils/fetch.py", 54)
    item = Frame("Pictures.__getitem__", "/home/me/data.py", 9)
    module = Frame("Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 1783)
    assert columns([fetch, item, module])["operation"] == "fetch"
    assert columns([item, module])["operation"] == "forward"


def test_the_users_own_python_has_no_operation() -> None:
    assert columns([Frame("main", "/home/me/train.py", 3)])["operation"] is None
    assert columns([])["file"] is None


def test_functions_of_the_recorder_are_not_in_the_stack() -> None:
    own = Frame("label", TORCH + "nn/<perfwrap importlib._bootstrap>", 68)
    assert columns([Frame("main", "/home/me/train.py", 3), own])["stack"] == "main (/home/me/train.py:3)"


def test_the_line_that_calls_an_operation_counts_not_the_method_that_passes_it_on() -> None:
    call = Frame("Normalize.__call__", "/home/me/transforms.py", 12)
    passing = Frame("MyTensor.__torch_function__", "/home/me/tensors.py", 282)
    assert columns([call, passing])["line"] == 12
    assert columns([passing])["line"] == 282
