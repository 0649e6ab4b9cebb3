"""What the schema of an operation says: what it writes, whether it is random, and what it does to old values."""

from __future__ import annotations

from perfwrap_recorder.dataflow.mode_dependent import DECOMPOSITIONS, EXTREMES, PRODUCTS

MODE_DEPENDENT = DECOMPOSITIONS | EXTREMES | PRODUCTS

OVERWRITES = frozenset(
    (
        *("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"),
        *(
            "geometric_",
            "log_normal_",
            "cauchy_",
            "_foreach_zero_",
            "_foreach_copy_",
            "set_",
            "eye",
            "arange",
        ),
    )
)
"""They write every element without reading it."""

EMPTY = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"),
        "_empty_affine_quantized",
    )
)

NORMS = frozenset(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"))
"""Their schemas do not say that they write their running statistics, the arguments RUNNING."""
RUNNING, TRAINS = (3, 4), 5

PLAIN = frozenset(("aten", "prims", "profiler", "c10d_functional", "_c10d_functional"))
"""Namespaces of operations whose effects their schemas show."""


class Kind:
    """One operation: its number in the window, and what its schema says."""

    __slots__ = (
        "dropout",
        "is_empty",
        "is_mode_dependent",
        "name",
        "number",
        "overwrites",
        "random",
        "row",
        "written",
    )

    def __init__(self, torch, function, number):
        schema = getattr(function, "_schema", None)
        name = schema.name if schema is not None else str(function)
        space, _, self.name = name.rpartition("::")
        arguments = schema.arguments if schema is not None else ()
        tags = getattr(function, "tags", ())
        self.number = number
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.written = frozenset(
            each.name if each.kwarg_only else at
            for at, each in enumerate(arguments)
            if each.alias_info is not None and each.alias_info.is_write
        )
        self.dropout = next((at for at, each in enumerate(arguments) if each.name == "dropout_p"), None)
        """The argument that is 0 if nothing is random."""
        is_out = getattr(function, "_overloadname", "") == "out" and not self.name.endswith("_")
        self.overwrites = self.name in OVERWRITES or is_out
        self.is_empty = self.name in EMPTY
        self.is_mode_dependent = self.name.rstrip("_") in MODE_DEPENDENT
        dynamic = getattr(torch.Tag, "dynamic_output_shape", None)
        self.row = (
            self.name,
            str(function),
            space,
            self.random,
            dynamic is not None and dynamic in tags,
            space not in PLAIN,
            self.is_empty,
        )

    def is_random(self, arguments, options):
        """Return whether this call draws random numbers."""
        if not self.random or self.dropout is None:
            return self.random
        at = self.dropout
        return bool(arguments[at] if at < len(arguments) else options.get("dropout_p", 0.0))
