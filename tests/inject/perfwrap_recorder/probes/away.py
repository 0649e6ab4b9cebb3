"""A second device for tests on machines without a GPU: torch's own means for backends written in Python.

Its memory is the host's, so direction, bytes and lines of a copy can be tested; pinned memory, streams and the time
that a copy really takes cannot.
"""

from importlib import import_module

import pytest

AWAY = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("away")
library = torch.library.Library("aten", "IMPL", "PrivateUse1")
def make(size, *more, dtype=None, **options):
    return torch._C._acc.create_empty_tensor(list(size), dtype or torch.float32)
library.impl("empty.memory_format", make)
library.impl("empty_strided", make)
library.impl("_copy_from", lambda source, target, non_blocking=False: target)
library.impl("view", lambda tensor, size: make(size, dtype=tensor.dtype))
"""
"""Program text that makes the device ``away``."""

needs_away = pytest.mark.skipif(
    not hasattr(import_module("torch.utils.backend_registration"), "_setup_privateuseone_for_python_backend"),
    reason="this version of torch has no devices that are written in Python",
)
