"""Changes of models and optimizers: what the program sees of them, where they refuse, how they combine."""

from __future__ import annotations

import shutil

import pytest

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 2)
    def forward(self, images):
        hidden = self.conv(images)
        if not torch.compiler.is_compiling():
            seen.append((str(hidden.dtype), images.is_contiguous(memory_format=torch.channels_last)))
        return {"out": self.last(hidden.flatten(1)), "same": images}
seen = []
torch.manual_seed(1)
model, images, labels = Net(), torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 1, 0])
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
def step():
    optimizer.zero_grad(set_to_none=False)
    found = model(images)
    loss = nn.CrossEntropyLoss()(found["out"], labels)
    loss.backward()
    optimizer.step()
    return found, loss
"""


def test_bf16_is_around_the_model_alone(tried) -> None:
    program = (
        NET
        + """
import copy, pickle
for _ in range(3): found, loss = step()
print(set(seen), found["out"].dtype, found["same"] is images, loss.dtype, model.conv.weight.grad.dtype)
print(torch.is_autocast_enabled("cpu"), sorted(vars(copy.deepcopy(model))) == sorted(vars(Net())))
print(copy.deepcopy(model)(images)["out"].dtype, type(pickle.loads(pickle.dumps(model))).__name__, len(seen))
with torch.autocast("cpu", torch.bfloat16): print(model(images)["out"].dtype)
other = nn.Linear(8, 2)
with torch.autocast("cpu", torch.bfloat16): print(other(torch.ones(1, 8)).dtype)
print(other(torch.ones(1, 8)).dtype, nn.Linear(8, 2).bfloat16()(torch.ones(1, 8).bfloat16()).dtype)
"""
    )
    done = tried(program, "bf16")
    assert done.stdout.splitlines() == [
        "{('torch.bfloat16', False)} torch.float32 True torch.float32 torch.float32",
        "False True",
        "torch.float32 Net 4",
        "torch.bfloat16",
        "torch.bfloat16",
        "torch.float32 torch.bfloat16",
    ]
    assert done.said("bf16") == "applied"
    assert done.sites("bf16")[0] == (
        "program.py",
        done.line("found = model("),
        "Net in float32",
        "autocast to bfloat16",
    )


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "with torch.autocast('cpu', torch.bfloat16): nn.Linear(8, 2)(torch.ones(1, 8))",
            "under autocast already",
        ),
        ("nn.Linear(8, 2).double()(torch.ones(1, 8).double())", "not float32"),
    ],
)
def test_bf16_refuses_where_there_is_nothing_to_narrow(tried, program: str, said: str) -> None:
    done = tried(program, "bf16")
    assert done.said("bf16") == "refused"
    assert said in done.said("bf16", "reason")


def test_what_is_for_gpus_refuses_on_the_cpu_and_says_so(tried) -> None:
    names = ("fp16", "tf32", "cudnn-benchmark", "non-blocking", "no-empty-cache", "defer-item")
    names += ("expandable-segments", "pin-memory")
    program = NET + "step(); step(); print(seen[-1], images.to('cpu') is images, loss_of(step()))"
    program = "def loss_of(pair): return round(pair[1].item(), 4)\n" + program
    done = tried(program, *names)
    assert {name: done.said(name) for name in names} == dict.fromkeys(names, "refused")
    assert all("GPU" in done.said(name, "reason") for name in names)
    assert done.stdout == tried(program).stdout


def test_model_and_optimizer_changes_combine(tried) -> None:
    program = (
        NET
        + """
for _ in range(3): step()
weight = model.conv.weight
print(seen[-1], weight.is_contiguous(memory_format=torch.channels_last), optimizer.param_groups[0]["fused"])
optimizer.zero_grad(set_to_none=False)
print(model.conv.weight.grad)
model.conv(images).sum().backward()
model.zero_grad(False)
print(model.conv.weight.grad)
"""
    )
    names = ("bf16", "channels-last", "fused-optimizer", "set-to-none")
    done = tried(program, *names)
    assert done.stdout == "('torch.bfloat16', True) True True\nNone\nNone\n"
    assert {name: done.said(name) for name in names} == dict.fromkeys(names, "applied")
    assert done.sites("fused-optimizer") == [("program.py", done.line("AdamW"), "fused=None", "fused=True")]
    assert done.sites("set-to-none")[0][1] == done.line("optimizer.zero_grad(")
    assert done.sites("set-to-none")[-1][1] == done.line("model.zero_grad(")
    assert done.said("set-to-none", "count") == "5"


def test_optimizers_that_cannot_be_fused_stay_as_they_are(tried) -> None:
    program = """
class Mine(torch.optim.SGD):
    def step(self, closure=None): pass
parameters = [nn.Parameter(torch.ones(2))]
print(Mine(parameters, 0.1).param_groups[0]["fused"])
print("fused" in torch.optim.RMSprop(parameters).param_groups[0])
groups = [{"params": (one for one in parameters)}]
print(torch.optim.SGD(groups, 0.1).param_groups[0]["fused"])
try: torch.optim.SGD(torch.ones(2), 0.1)
except TypeError as error: print(str(error)[:40])
"""
    done = tried(program, "fused-optimizer")
    assert done.stdout == tried(program).stdout
    assert done.said("fused-optimizer") == "refused"


def test_fused_in_groups_with_names_and_by_keyword_reads_generators_once(tried) -> None:
    program = """
model = nn.Linear(2, 2)
made = [
    torch.optim.Adam(params=model.parameters()),
    torch.optim.SGD([{"params": [model.weight]}, {"params": model.bias, "lr": 0.5}], lr=0.1, foreach=True),
]
for one in made: print([len(group["params"]) for group in one.param_groups], one.param_groups[0]["fused"])
made[0].load_state_dict(torch.optim.Adam(model.parameters(), fused=False).state_dict())
"""
    assert tried(program, "fused-optimizer").stdout == "[2] True\n[1, 1] True\n"


def test_what_is_so_already_is_said(tried) -> None:
    program = """
optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1, fused=True)
optimizer.zero_grad()
"""
    done = tried(program, "fused-optimizer", "set-to-none")
    assert (done.said("fused-optimizer"), done.said("set-to-none")) == ("refused", "unused")
    assert "already" in done.said("fused-optimizer", "reason")
    assert "already" in done.said("set-to-none", "reason")


@pytest.mark.skipif(shutil.which("g++") is None, reason="the default compiler of torch.compile needs g++")
def test_the_outermost_module_is_compiled_under_the_other_changes(tried) -> None:
    program = (
        NET
        + """
for _ in range(3): found, loss = step()
from torch._dynamo.utils import counters
print(counters["stats"]["unique_graphs"], seen, found["out"].dtype, loss.item() == loss.item())
compiled = torch.compile(nn.Linear(8, 2), backend="eager")
print(compiled(torch.ones(1, 8)).shape)
"""
    )
    done = tried(program, "compile", "bf16")
    assert done.stdout == "1 [] torch.float32 True\ntorch.Size([1, 2])\n"
    assert done.said("compile") == "applied"
    assert done.sites("compile")[0] == (
        *("program.py", done.line("found = model(")),
        *("Net not compiled", "compile(mode='default')"),
    )


def test_where_the_compiler_fails_the_program_goes_on_without(tried) -> None:
    done = tried(
        NET + "print(len([step() for _ in range(3)]), len(seen))", "compile", more={"CXX": "/no/compiler"}
    )
    assert done.stdout == "3 3\n"
    assert done.said("compile") == "refused"
    assert "the compiler failed for Net" in done.said("compile", "reason")


def test_an_error_of_the_models_is_the_programs_own(tried) -> None:
    program = """
class Wrong(nn.Linear):
    def forward(self, x):
        torch._dynamo.graph_break()
        raise KeyError("mine")
try: Wrong(2, 2)(torch.ones(1, 2))
except KeyError as error: print(error)
"""
    done = tried(program, "compile")
    assert done.stdout == "'mine'\n"
    assert done.said("compile") == "applied"


def test_a_compiled_model_is_not_compiled_again(tried) -> None:
    program = """
model = nn.Linear(8, 2)
model.compile(backend="eager")
print(model(torch.ones(1, 8)).shape, torch.compile(nn.Linear(8, 2), backend="eager")(torch.ones(1, 8)).shape)
"""
    done = tried(program, "compile")
    assert done.said("compile") == "refused"
    assert "compiled already" in done.said("compile", "reason")


def test_a_model_without_images_is_not_converted(tried) -> None:
    done = tried("print(nn.Linear(8, 2)(torch.ones(1, 8)).shape)", "channels-last")
    assert "no 2-d convolutions" in done.said("channels-last", "reason")
