"""Run a sample of a library's tests: the same ones each time, in the order in which pytest collects them.

python library_tests.py COUNT [other arguments of pytest]
"""

import random
import sys

import pytest
import torch


class Sample:
    """Keeps this many tests, drawn with a seed of its own."""

    def __init__(self, count):
        self.count = count

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Drop the others."""
        kept = random.Random(5).sample(range(len(items)), min(self.count, len(items)))
        items[:] = [items[place] for place in sorted(kept)]


if __name__ == "__main__":
    sys.path.insert(0, ".")
    random.seed(5)  # Some tests draw their parameters.
    torch.manual_seed(5)
    options = ["-p", "no:cacheprovider", "-q", "-rA", "--tb=line", *sys.argv[2:]]
    sys.exit(pytest.main(options, [Sample(int(sys.argv[1]))]))
