"""Edit a labelled workload as TraceML's documentation asks, so that TraceML can judge it.

From its quickstart: ``traceml.init(mode="auto")`` once, and ``with traceml.trace_step(model):`` around the body of the
training step. From its guide to input pipelines: ``traceml.wrap_dataloader_fetch(...)`` around the iterable of
a loop that is not a DataLoader; otherwise TraceML reports incomplete data. From its FAQ: wrappers for custom loops,
here for loops that train two models. From its guide to distributed training: its own launcher starts the ranks.

The step contains the whole body of the loop, as in the quickstart's example. This favours TraceML if a problem is next
to the optimizer's step (logging, checkpoints, validation); in its healthy scripts the step then includes the making of
batches. With ``narrow``, the step contains only the code from forward pass or ``zero_grad`` to the optimizer's step, as
in the quickstart's text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path

NOT_EDITED = {
    "rank_restart": "TraceML's launcher has no --max-restarts, and its ranks end with an error the first time",
    "checkpoint_trainer": "its steps are in a while loop, for which no edit was written",
    "thread_oversubscription_hogwild": "its three processes train one model and are no ranks, which TraceML needs",
    **dict.fromkeys(
        (
            "checkpoint_hashes",
            "dense_embedding_clicks",
            "dense_embedding_words",
            "distribution_checks_cartpole",
            "double_precision_spectra",
            "evaluation_each_step_citations",
            "unused_gradients_keywords",
            "unused_gradients_shapes",
            "padded_batches_addresses",
            "padded_batches_tickets",
            "gc_collect_replay",
            "half_precision_keypoints",
            "healthy_a2c",
            "healthy_callbacks",
            "healthy_lbfgs",
            "healthy_lm",
            "healthy_recurrence",
            "loop_in_model_regions",
            "loop_in_model_triplets",
            "healthy_needless_workers_sensors",
            "healthy_small_tables",
            "healthy_store",
            "healthy_task_gradients",
            "healthy_two_towers",
            "healthy_vae",
            "needless_workers_sensors",
            "needless_workers_tabular",
            "python_overhead_copies",
            "python_overhead_pixels",
            "repeated_backward_faces",
            "slow_collate_lists",
            "validation_beside_teacher",
            "worker_restart_episodes",
            "worker_lock_contention_archive",
            "worker_lock_contention_store",
        ),
        "it came after TraceML was compared, and no edit was written",
    ),
}
"""Scripts without an edit, and the reason."""

AUTO = 'traceml.init(mode="auto")'
SELECTIVE = 'traceml.init(mode="selective", patch_dataloader=True, patch_backward=True, patch_h2d=True)'
"""For loops of two models: ``trace_step`` times the forward passes of one model only, the wrappers those of each."""

SPAWN = (
    "mp.spawn(train, args=(str(29600 + os.getpid() % 300),), nprocs=2)",
    'train(int(os.environ["RANK"]), os.environ["MASTER_PORT"])',
)
TWO_MODELS = (
    "bce = nn.BCEWithLogitsLoss()",
    "bce = nn.BCEWithLogitsLoss()\n"
    "traceml.wrap_forward(generator)\ntraceml.wrap_forward(judge)\n"
    "traceml.wrap_optimizer(optimizer_g)\ntraceml.wrap_optimizer(optimizer_d)",
)
BY_HAND = {
    "debug_mode_enabled": TWO_MODELS,
    "healthy_gan": TWO_MODELS,
    "healthy_no_sync": SPAWN,
    "straggler_data": SPAWN,
    "synchronised_accumulation": SPAWN,
    "validation_share": ("batches(train, 256)", "traceml.wrap_dataloader_fetch(batches(train, 256))"),
}
"""Replacements in single scripts, made before the common edits."""

MODELS = {
    "healthy_compiled": "model",
    "phase_balance": "model",
    "recompilation": "model",
    "recompilation_flag": "self.compiled",
    "slow_optimizer_copied": "model",
    "slow_optimizer_default": "self.model",
    "zero_grad_memset": "model",
}
"""The model that a loop calls, if it is not the one whose parameters the optimizer has."""

RANKS = re.compile(r"^# run: torchrun --nproc-per-node (\d+)", re.MULTILINE)
OPTIMIZER = re.compile(r"\bopt\b|optimizer|sgd|adam")


def ranks_of(script: Path) -> int:
    """Return how many ranks TraceML's launcher has to start."""
    found = RANKS.search(script.read_text(encoding="utf-8"))
    return int(found[1]) if found else 2 if BY_HAND.get(script.stem) == SPAWN else 1


def edited(script: Path, narrow: bool = False) -> str:
    """Return the source of a script with the edits."""
    text = script.read_text(encoding="utf-8")
    if script.stem in BY_HAND:
        old, new = BY_HAND[script.stem]
        assert text.count(old) == 1, f"{script.name} does not match its replacement any more."
        text = text.replace(old, new)
    tree = ast.parse(text)
    helpers = _functions_with_a_step(tree)
    loop = _training_loop(tree, helpers)
    model = MODELS.get(script.stem) or _model(tree)
    first, end = _core(loop.body, model, helpers) if narrow else (0, len(loop.body))
    step = ast.parse(f"with traceml.trace_step({model}):\n    pass").body[0]
    assert isinstance(step, ast.With)
    step.body, loop.body[first:end] = loop.body[first:end], [step]
    if "DataLoader(" not in text or _name(loop.iter) == "range":
        loop.iter = ast.parse(f"traceml.wrap_dataloader_fetch({ast.unparse(loop.iter)})", mode="eval").body
    _initialise(tree, SELECTIVE if "traceml.wrap_forward" in text else AUTO)
    return ast.unparse(tree) + "\n"


def _initialise(tree: ast.Module, code: str) -> None:
    """Import TraceML, and start it where the work begins, since spawned loader workers import the script, too."""
    guard = next((n for n in tree.body if isinstance(n, ast.If) and "__name__" in ast.unparse(n.test)), None)
    # The first statement is the docstring.
    work = next(
        at for at, n in enumerate(tree.body) if at and not isinstance(n, (ast.Import, ast.ImportFrom))
    )
    place, at = (guard.body, 0) if guard else (tree.body, work)
    place[at:at] = ast.parse(code).body
    tree.body[1:1] = ast.parse("import traceml_ai as traceml").body


def _training_loop(tree: ast.Module, helpers: Set[str]) -> ast.For:
    """Return the one innermost loop with the optimizer's step, or with a call of a function that makes it."""
    loops = [loop for loop in _loops(tree) if any(_is_step(call, helpers) for call in _calls(loop))]
    innermost = [
        loop for loop in loops if not any(inner in loops for inner in _loops(loop) if inner is not loop)
    ]
    assert len(innermost) == 1, f"{len(innermost)} loops make an optimizer's step."
    return innermost[0]


def _functions_with_a_step(tree: ast.Module) -> set[str]:
    """Return the names of the functions that make the optimizer's step outside a loop of their own."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = set()
    for function in functions:
        looped = {call for loop in _loops(function) for call in _calls(loop)}
        if any(_is_step(call) for call in _calls(function) if call not in looped):
            names.add(function.name)
    return names


def _model(tree: ast.Module) -> str:
    """Return the model whose parameters the optimizer has, or whose parameters are used first."""
    optimizers = [call for call in _calls(tree) if ".optim." in ast.unparse(call.func)]
    given = [inner for optimizer in optimizers for inner in _calls(optimizer)]
    for call in given + _calls(tree):
        if _name(call) == "parameters" and isinstance(call.func, ast.Attribute):
            return ast.unparse(call.func.value)
    raise AssertionError("The script uses the parameters of no model.")


def _core(body: list[ast.stmt], model: str, helpers: Set[str]) -> tuple[int, int]:
    """Return the first place, and the place after the last, of the statements of the narrow step."""
    names = {"zero_grad", "backward"}
    inside = [
        at
        for at, statement in enumerate(body)
        for call in _calls(statement)
        if _is_step(call, helpers) or _name(call) in names or ast.unparse(call.func) == model
    ]
    return min(inside), max(inside) + 1


def _is_step(call: ast.Call, helpers: Set[str] = frozenset()) -> bool:
    """Return whether a call makes the optimizer's step, directly or by a function."""
    takes = isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    return (takes and bool(OPTIMIZER.search(ast.unparse(call)))) or _name(call) in helpers


def _name(node: ast.expr) -> str:
    """Return the last part of the called name."""
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function).rpartition(".")[2]


def _loops(node: ast.AST) -> list[ast.For]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.For)]


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
