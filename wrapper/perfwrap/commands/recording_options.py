"""Options that the recording commands share, with their words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The run folder; a new or empty one.", show_default="perfwrap-runs/<UTC time>-<name>"),
]
Name: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="What to call the run; other commands find it by that.", show_default="none"
    ),
]
Tags: TypeAlias = Annotated[
    str,
    typer.Option(metavar="WORDS", help="Words to find the run by, joined by commas.", show_default="none"),
]
RunId: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="ID",
        envvar="PERFWRAP_RUN_ID",
        help="Join the run of this name, with all that are started with it, on this machine and others.",
        show_default="the job of Slurm, torchrun or MPI",
    ),
]
Rate: TypeAlias = Annotated[
    float, typer.Option(metavar="HZ", min=0.1, max=100, help="How often to look at host and GPU.")
]
PySpyRate: TypeAlias = Annotated[
    float, typer.Option(metavar="HZ", min=10, max=200, help="How often py-spy samples.")
]
PySpyNative: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--py-spy-native", help="Have py-spy sample compiled code, too; it stops the program for each sample."
    ),
]
NoReport: TypeAlias = Annotated[
    bool, typer.Option("--no-report", help="Only record; `perfwrap report` reads it later.")
]

Command: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="[--] CMD...", show_default=False)]
Nvtx: TypeAlias = Annotated[bool, typer.Option("--nvtx", help="Push NVTX ranges even where no tool listens.")]
NoMonitors: TypeAlias = Annotated[bool, typer.Option("--no-monitors", help="Do not watch host and GPU.")]
Sample: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="HZ",
        min=0,
        max=200,
        help="How often to sample the program's lines from a thread inside; 20 is enough, 0 is never.",
    ),
]
PySpy: TypeAlias = Annotated[
    bool,
    typer.Option("--py-spy", help="Have py-spy sample stacks of the training processes from outside."),
]
NoGlance: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-glance",
        help="Do not have py-spy, where it is installed, look for half a minute at the thread that trains.",
    ),
]
MaxOverhead: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="PERCENT",
        help="What detail may cost of the steps' time; steps that would cost more are only counted.",
    ),
]
Window: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="STEPS",
        help="The steps that PyTorch's profiler watches: steady takes 3 once they are steady, auto the "
        "same where a GPU is used, 5@100 takes 5 after 100, worst the slowest of 100.",
    ),
]
NoWindow: TypeAlias = Annotated[bool, typer.Option("--no-window", help="Do not use PyTorch's profiler.")]
WindowDetail: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="WORDS",
        show_default="none",
        help="What it notes beside: shapes, stack, memory, flops, joined by commas. Each costs more.",
    ),
]
WindowRanks: TypeAlias = Annotated[
    str, typer.Option(metavar="RANKS", help="Which ranks it watches: 0, or all at the same steps.")
]
Nsys: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--nsys",
        help="Have Nsight Systems watch some steps; --nsys='OPTIONS' passes more options to nsys profile.",
    ),
]
NsysOptions: TypeAlias = Annotated[str, typer.Option("--nsys-options", hidden=True)]
Ncu: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ncu",
        help="Have Nsight Compute measure the kernels that took longest in an earlier run; "
        "--ncu='OPTIONS' passes more options to ncu.",
    ),
]
NcuOptions: TypeAlias = Annotated[str, typer.Option("--ncu-options", hidden=True)]
NcuFrom: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="The earlier run that says which kernels.",
        show_default="the latest one with kernels",
    ),
]
Change: TypeAlias = Annotated[list[str] | None, typer.Option("--change", hidden=True)]
TrialSteps: TypeAlias = Annotated[int, typer.Option("--trial-steps", min=0, hidden=True)]
TrialWarmUp: TypeAlias = Annotated[str, typer.Option("--trial-warm-up", hidden=True)]
TrialPrecision: TypeAlias = Annotated[float, typer.Option("--trial-precision", min=0, max=1, hidden=True)]
AllowWrites: TypeAlias = Annotated[bool, typer.Option("--allow-writes", hidden=True)]
StallAfter: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Tell of a stall when no step ends for so long, and for five times the slowest steps; 0 is never.",
    ),
]
KillOnStall: TypeAlias = Annotated[
    bool, typer.Option("--kill-on-stall", help="End a stalled command, after its stacks were written.")
]
KillGrace: TypeAlias = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long after SIGTERM a stalled command is killed.")
]
MetricsPort: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve metrics for Prometheus while the command runs.",
        show_default="none",
    ),
]
MetricsAddress: TypeAlias = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Where to listen; others than loopback want a token.")
]
MetricsTokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The file with the token that who asks must bear.", show_default="none"
    ),
]
Budget: TypeAlias = Annotated[
    int, typer.Option(metavar="MIB", min=1, max=4096, help="How large each process's journal may become.")
]
