from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.edits import edit
from perfwrap.edits.outcome import Edited, Target

NAME = "loader_options"
IMPORT = "from torch.utils.data import DataLoader\n"


@pytest.mark.parametrize(
    ("call", "values", "expected"),
    [
        ("DataLoader(data, 8)", {"num_workers": 4}, "DataLoader(data, 8, num_workers=4)"),
        ("DataLoader(data, num_workers=0)", {"num_workers": 4}, "DataLoader(data, num_workers=4)"),
        ("DataLoader( data ,8 , )", {"pin_memory": True}, "DataLoader( data ,8, pin_memory=True , )"),
        (
            "DataLoader(data, 8, True, None, None, 0)",
            {"num_workers": 2, "persistent_workers": True},
            "DataLoader(data, 8, True, None, None, 2, persistent_workers=True)",
        ),
        (
            "DataLoader(data, num_workers=2, prefetch_factor=2)",
            {"prefetch_factor": 8},
            "DataLoader(data, num_workers=2, prefetch_factor=8)",
        ),
    ],
)
def test_arguments_of_the_call_are_set(
    apply: Callable[..., str], call: str, values: dict[str, int], expected: str
) -> None:
    program = f"{IMPORT}data = [1]\nloader = {call}  # here\n"
    assert apply(NAME, program, **values) == f"-loader = {call}  # here\n+loader = {expected}  # here"


def test_other_names_of_the_class_are_known(apply: Callable[..., str]) -> None:
    program = "import torch.utils.data as D\nfrom torch.utils.data import DataLoader as L\nx = L(D)  # here\n"
    assert "+x = L(D, num_workers=1)" in apply(NAME, program, num_workers=1)


def test_a_call_with_one_argument_per_line_keeps_its_style(apply: Callable[..., str]) -> None:
    program = """
    from torch.utils.data import DataLoader

    def make(data):
        return DataLoader(  # here
            data,  # the data
            batch_size=8,  # small
            shuffle=True,  # last
        )
    """
    assert apply(NAME, program, num_workers=2, persistent_workers=True) == (
        "+        num_workers=2,\n+        persistent_workers=True,"
    )


def test_without_a_comma_at_the_end_none_is_added(apply: Callable[..., str]) -> None:
    program = """
    from torch.utils.data import DataLoader
    data = []
    loader = DataLoader(data,  # here
                        batch_size=8,
                        shuffle=True
                        )
    """
    assert apply(NAME, program, num_workers=2) == (
        "-                    shuffle=True\n+                    shuffle=True,\n+                    num_workers=2"
    )


def test_the_default_of_an_option_is_changed(apply: Callable[..., str]) -> None:
    program = """
    import argparse
    from torch.utils.data import DataLoader
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--data-workers", type=int, default=0, help="workers (0)")

    def main(args):
        return DataLoader([1], num_workers=args.data_workers)  # here

    main(parser.parse_args())
    """
    assert apply(NAME, program, num_workers=3) == (
        '-parser.add_argument("-j", "--data-workers", type=int, default=0, help="workers (0)")\n'
        '+parser.add_argument("-j", "--data-workers", type=int, default=3, help="workers (0)")'
    )


@pytest.mark.parametrize("words", [("-j", "0"), ("-j2",), ("--data-workers=2",), ("--data", "2")])
def test_an_option_that_the_command_sets_is_refused(
    refuse: Callable[..., str], words: tuple[str, ...]
) -> None:
    program = """
    import argparse
    from torch.utils.data import DataLoader
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--data-workers", type=int, default=0)
    args = parser.parse_args()
    DataLoader([1], num_workers=args.data_workers)  # here
    """
    assert "The command sets" in refuse(NAME, program, ("train.py", *words), num_workers=3)


def test_a_constant_a_parameter_an_attribute_and_a_dictionary_are_followed(apply: Callable[..., str]) -> None:
    program = """
    from torch.utils.data import DataLoader
    WORKERS = 0
    config = {"pin": False, "workers": 1}
    options = dict(batch_size=2, prefetch_factor=2)

    class Data:
        def __init__(self, workers=0):
            self.keep = False

        def make(self, pin):
            return DataLoader([1], num_workers=WORKERS, pin_memory=pin, persistent_workers=self.keep, **options)  # here

    Data().make(config["pin"])
    """
    assert apply(
        NAME, program, num_workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=4
    ) == (
        '-WORKERS = 0\n-config = {"pin": False, "workers": 1}\n-options = dict(batch_size=2, prefetch_factor=2)\n'
        '+WORKERS = 2\n+config = {"pin": True, "workers": 1}\n+options = dict(batch_size=2, prefetch_factor=4)\n'
        "-        self.keep = False\n+        self.keep = True"
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("x = DataLoader(d, num_workers=os.cpu_count())", "is computed"),
        ("x = DataLoader(d, num_workers=n)", "n is not assigned in this file"),
        ("n = 0\nn = 1\nx = DataLoader(d, num_workers=n)", "assigned in several places"),
        ("n = 0\nprint(n)\nx = DataLoader(d, num_workers=n)", "used for something else at line 3"),
        ("x = DataLoader(d, num_workers=args.n)", "outside of this file"),
        ("x = DataLoader(d, **options)", "not assigned in this file"),
        ("o = {'a': 1}\no.pop('a')\nx = DataLoader(d, **o)", "is changed by pop()"),
        ("o = {'a': 1}\nf(o)\nx = DataLoader(d, **o)", "also used at line 3"),
        ("o = {'a': 1}\nf(**o)\nx = DataLoader(d, **o)", "also used at line 3"),
        ("o = {'a': 1}\no.update(f())\nx = DataLoader(d, **o)", "not a literal dictionary"),
        ("o = {'a': 1}\nfor i in y:\n    o['b'] = i\nx = DataLoader(d, **o)", "is changed at line 4"),
        ("o = {}\no['num_workers'] = 1\no = {}\nx = DataLoader(d, **o)", "is changed at line 3"),
        ("o = {'num_workers': 1} if g else {}\nx = DataLoader(d, **o)", "is not known"),
        ("o = {'num_workers': n()} if g else {}\nx = DataLoader(d, **o)", "is not known"),
        ("o = read()\nx = DataLoader(d, **o)", "not a literal dictionary"),
        ("def f(n):\n    return DataLoader(d, num_workers=n)\nf(1)\nx = f(2)", "exactly once"),
        ("x = DataLoader(d, num_workers=4)", "The DataLoader has num_workers=4"),
        ("x = len(d)", "no call of a DataLoader"),
        (
            "class S(torch.utils.data.IterableDataset):\n    pass\nx = DataLoader(S())",
            "each worker would return all",
        ),
        ("p.add_argument('--w', default=0)\nx = DataLoader(d, num_workers=a.w)", "not known to come"),
        (
            "p.add_argument('--w', action='store_true')\na = p.parse_args()\nx = DataLoader(d, num_workers=a.w)",
            "is a switch",
        ),
    ],
)
def test_what_is_not_one_literal_is_refused(refuse: Callable[..., str], program: str, reason: str) -> None:
    lines = f"{IMPORT}{program}".splitlines()
    at = max(number for number, line in enumerate(lines) if "DataLoader" in line or line == "x = len(d)")
    lines[at] += "  # here"
    assert reason in refuse(NAME, "\n".join(lines) + "\n", num_workers=4)


def test_arguments_that_need_workers_are_refused_without_them(refuse: Callable[..., str]) -> None:
    assert "needs num_workers" in refuse(NAME, f"{IMPORT}DataLoader([1])  # here\n", persistent_workers=True)


def test_an_argument_that_follows_the_workers_stays(apply: Callable[..., str]) -> None:
    program = f"{IMPORT}x = DataLoader(d, num_workers=0, persistent_workers=w > 0)  # here\n"
    assert "+x = DataLoader(d, num_workers=2, persistent_workers=w > 0)" in apply(
        NAME, program, num_workers=2, persistent_workers=True
    )


@pytest.mark.parametrize("other", ["persistent_workers=a.j > 0", "prefetch_factor=4 if a.j else None"])
def test_an_option_may_also_decide_what_needs_workers(apply: Callable[..., str], other: str) -> None:
    program = (
        f"{IMPORT}import argparse\np = argparse.ArgumentParser()\np.add_argument('-j', type=int, default=0)\n"
        f"a = p.parse_args()\nx = DataLoader(d, num_workers=a.j, {other})  # here\n"
    )
    changed = apply(NAME, program, num_workers=2)
    assert "+p.add_argument('-j', type=int, default=2)" in changed
    assert "DataLoader(d" not in changed


def test_an_option_that_also_decides_the_size_of_batches_stays(refuse: Callable[..., str]) -> None:
    program = f"{IMPORT}n = 2\nx = DataLoader(d, n, num_workers=n)  # here\n"
    assert "used for something else" in refuse(NAME, program, num_workers=4)


FIELDS = """
from dataclasses import dataclass
from torch.utils.data import DataLoader

@dataclass
class Config:
    batch_size: int = 8
    num_workers: int = 0

def main(config):
    return DataLoader(data, batch_size=config.batch_size, num_workers=config.num_workers)  # here

main(Config())
"""


def test_the_default_of_a_field_is_changed(apply: Callable[..., str]) -> None:
    assert apply(NAME, FIELDS, num_workers=2) == "-    num_workers: int = 0\n+    num_workers: int = 2"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Config()", "Config(num_workers=4)", ()),
        ("Config()", "Config(8, 4)", ()),
        ("Config()", "Config(**read())", ()),
        ("main(Config())", "print(Config().num_workers)", ()),
        ("main(Config())", "c = Config()\nc.num_workers = 3", ()),
        ("int = 0", "int = cores()", ()),
        ("main(Config())", "main(tyro.cli(Config))", ("train.py", "--num-workers=0")),
    ],
)
def test_a_field_that_gets_its_value_elsewhere_stays(
    old: str, new: str, words: tuple[str, ...], refuse: Callable[..., str]
) -> None:
    reason = refuse(NAME, FIELDS.replace(old, new), words, num_workers=2)
    assert "outside of this file" in reason or "The command sets" in reason


VAE = """
from torch.utils.data import DataLoader
kwargs = {'num_workers': 1, 'pin_memory': True} if use_accel else {}
train_loader = DataLoader(train, batch_size=8, **kwargs)  # here
test_loader = DataLoader(test, batch_size=8, **kwargs)
"""
MNIST = """
from torch.utils.data import DataLoader

def main(args, use_accel):
    train_kwargs = {'batch_size': args.batch_size}
    test_kwargs = {'batch_size': args.test_batch_size}
    if use_accel:
        accel_kwargs = {'num_workers': 1,
                        'pin_memory': True}
        train_kwargs.update(accel_kwargs)
        test_kwargs.update(accel_kwargs)
    train_loader = DataLoader(data, **train_kwargs)  # here
    test_loader = DataLoader(test, **test_kwargs)
"""


@pytest.mark.parametrize(
    ("program", "seen", "expected"),
    [
        (
            VAE,
            0,
            "-kwargs = {'num_workers': 1, 'pin_memory': True} if use_accel else {}\n"
            "+kwargs = {'num_workers': 1, 'pin_memory': True} if use_accel else "
            '{"num_workers": 2, "persistent_workers": True}',
        ),
        (
            VAE,
            1,
            "-kwargs = {'num_workers': 1, 'pin_memory': True} if use_accel else {}\n"
            "+kwargs = {'num_workers': 2, 'pin_memory': True, 'persistent_workers': True} if use_accel else {}",
        ),
        (
            MNIST,
            0,
            "-    train_kwargs = {'batch_size': args.batch_size}\n"
            "+    train_kwargs = {'batch_size': args.batch_size, 'num_workers': 2, 'persistent_workers': True}",
        ),
        (
            MNIST,
            1,
            "-        accel_kwargs = {'num_workers': 1,\n-                        'pin_memory': True}\n"
            "+        accel_kwargs = {'num_workers': 2,\n+                        'pin_memory': True,\n"
            "+                        'persistent_workers': True}",
        ),
    ],
)
def test_the_dictionary_that_the_run_used_is_edited(
    program: str, seen: int, expected: str, apply: Callable[..., str]
) -> None:
    known = {"num_workers": seen, "pin_memory": bool(seen)}
    assert apply(NAME, program, seen=known, num_workers=2, persistent_workers=True) == expected


def test_items_that_are_set_and_updates_with_keywords_are_followed(apply: Callable[..., str]) -> None:
    program = """
    from torch.utils.data import DataLoader
    options = {
        "shuffle": True,  # always
    }
    options["num_workers"] = 0
    if pinned:
        options.update(pin_memory=True)
    loader = DataLoader(data, **options)  # here
    """
    assert apply(NAME, program, seen={"pin_memory": False}, num_workers=2, pin_memory=True) == (
        '+    "pin_memory": True,\n-options["num_workers"] = 0\n+options["num_workers"] = 2'
    )


def test_an_attribute_with_options_is_followed(apply: Callable[..., str]) -> None:
    program = """
    from torch.utils.data import DataLoader

    class Data:
        def __init__(self):
            self.options = {"num_workers": 0}

        def make(self):
            return DataLoader(data, **self.options)  # here
    """
    assert apply(NAME, program, num_workers=2) == (
        '-        self.options = {"num_workers": 0}\n+        self.options = {"num_workers": 2}'
    )


def test_what_two_loaders_share_is_said(apply: Callable[..., str]) -> None:
    found = edit(NAME, VAE.lstrip(), Target(3, {"num_workers": 2}, (), {"num_workers": 0}))
    assert isinstance(found, Edited)
    assert found.sentence == (
        "Add num_workers=2 at line 2: the DataLoader at line 3, and what shares its options (line 4)."
    )


@pytest.mark.parametrize(
    ("program", "values", "said"),
    [
        (
            VAE.replace(" else {}", " else {'num_workers': 0}"),
            {"num_workers": 2, "persistent_workers": True},
            "need",
        ),
        (VAE.replace(" else {}", " else {'num_workers': 1}"), {"num_workers": 2}, "not certain"),
        (
            VAE.replace("'num_workers': 1", "'num_workers': cores"),
            {"num_workers": 2},
            "not all of its values",
        ),
        (VAE + "print(kwargs)\n", {"num_workers": 2}, "also used at line 5"),
        (MNIST + "    test(**accel_kwargs)\n", {"num_workers": 2}, "also used at line 13"),
        (MNIST + "    test(test_kwargs)\n", {"num_workers": 2}, "also used at line 13"),
    ],
)
def test_what_is_not_certain_about_dictionaries_is_refused(
    program: str, values: dict[str, int], said: str, refuse: Callable[..., str]
) -> None:
    assert said in refuse(NAME, program, seen={"num_workers": 1}, **values)
