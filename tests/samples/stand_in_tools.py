#!/usr/bin/env python3
"""Stands in for nsys and ncu where neither is installed: their command lines, checked, and what they do to a command.

As the real ones it prints to standard output, takes the command's output through a pipe of its own, ends with a
status of its own, and writes the environment's values into what it keeps. STAND_IN in the environment asks for
trouble: fails (before the command starts), apart (a session of its own), dies (while the command runs), nothing
(captures nothing), broken (cannot export), forbidden (may not read counters), old (a version that lacks what perfwrap
needs), older (one that lacks little), dumb (prints no help).
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

PROFILE = {
    "--trace": {"cuda", "nvtx", "osrt", "cudnn", "cublas", "none"},
    "--sample": {"none", "process-tree", "system-wide"},
    "--cpuctxsw": {"none", "process-tree", "system-wide"},
    "--capture-range": {"none", "nvtx", "cudaProfilerApi", "hotkey"},
    "--nvtx-capture": None,
    "--capture-range-end": {"none", "stop", "stop-shutdown"},
    "--kill": {"none", "sigterm", "sigkill"},
    "--wait": {"primary", "all"},
    "--force-overwrite": {"true", "false"},
    "--cuda-graph-trace": {"graph", "node"},
    "--cuda-event-trace": {"auto", "true", "false"},
    "--discard-environment": {"true", "false"},
    "--output": None,
}
LACKING = {
    "old": {"--capture-range-end", "--kernel-name-base", "--cuda-event-trace", "--discard-environment"},
    "older": {"--cpuctxsw", "--cuda-event-trace", "--discard-environment", "SpeedOfLight_RooflineChart"},
}
SECTIONS = (
    "SpeedOfLight", "Occupancy", "WarpStateStats", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "LaunchStats",
    "SpeedOfLight_RooflineChart",
)  # fmt: skip
EXPORT = {"--type": {"sqlite"}, "--force-overwrite": {"true", "false"}, "--output": None}
NCU = {
    "--target-processes": {"all", "application-only"},
    "--kernel-name-base": {"function", "demangled", "mangled"},
    "--kernel-name": None,
    "--launch-count": None,
    "--launch-skip": None,
    "--section": None,
    "--page": {"raw", "details"},
    "--log-file": None,
    "--csv": {""},
}
TROUBLE = os.environ.get("STAND_IN", "")


def show_help(words, known):
    """Print the version, the options or the sections, as the real tools do, if that is what is asked for."""
    lacking = LACKING.get(TROUBLE, set())
    if words[-1:] == ["--version"]:
        print("NVIDIA Nsight stand-in version 2020.3.4.32-52657a0" if lacking else "version 2026.1.1.204-0")
    elif words[-1:] == ["--help"]:
        print(
            "\n".join(
                f"\t{name}=\n\t   Its default is not {name[2:]}." for name in sorted({*known} - lacking)
            )
        )
    elif words[-1:] == ["--list-sections"]:
        print(
            "\n".join(
                f"{name:<45} A Section   yes   {name}.section" for name in SECTIONS if name not in lacking
            )
        )
    else:
        return
    sys.exit(3 if TROUBLE == "dumb" else 0)


def parse(words, known):
    """Return the options, and what stands behind them; the tool's own error for any other option or value."""
    options, words = {}, list(words)
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        allowed = known.get(name, set())
        if allowed is not None and not set(value.split(",")) <= allowed:
            sys.exit(f"unrecognised option '{name}={value}'")
        options[name] = value
    return options, words


def run(command):
    """Run the command as such tools do, and return its pid; its output goes through a pipe."""
    if TROUBLE == "fails":
        sys.exit("The target application terminated before it began.")
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=TROUBLE == "apart",
        env={**os.environ, "CUDA_INJECTION64_PATH": "none"},
    )
    if TROUBLE == "dies":
        deadline = time.monotonic() + 200
        while not Path(os.environ["STAND_IN_UNTIL"]).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if TROUBLE == "apart":  # As nsys does, it passes Ctrl-C on to all that it has started.
        signal.signal(signal.SIGINT, lambda number, frame: os.killpg(child.pid, number))
    child.communicate()
    return child.pid


def profile(words):
    options, command = parse(words, PROFILE)
    if options.get("--capture-range", "none") == "none" and "--capture-range-end" in options:
        sys.exit("The --capture-range-end option is only allowed when --capture-range is not 'none'.")
    print("Collecting data...", flush=True)
    began = time.time_ns()
    run(command)
    print("Generated:\n    " + options["--output"], flush=True)
    if TROUBLE != "nothing":
        report = {"began": began, "options": options, "environment": dict(os.environ)}
        with open(options["--output"], "w") as file:
            file.write("NVIDIA Tegra Profiler Report" + json.dumps(report))
    sys.exit(5)


def export(words):
    options, (report,) = parse(words, EXPORT)
    if TROUBLE == "broken":
        sys.exit("Importer error: the report is damaged")
    with open(report) as file:
        kept = json.loads(file.read().partition("Report")[2])
    database = sqlite3.connect(options["--output"])
    database.executescript(
        "CREATE TABLE StringIds (id INTEGER, value TEXT);"
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);"
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);"
        "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);"
    )
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (kept["began"],))
    names = ["void at::native::gemm<float, (int)3>(float*, int)", "cutlass::Kernel<a::b<c>>(a::b<c>::Params)"]
    for number, name in enumerate(names):
        database.execute("INSERT INTO StringIds VALUES (?, ?)", (number, name))
        start = 1_000_000 * (number + 1)
        row = (start, start + 500_000 - number, 0, 7, number, (1 << 48) + (4711 << 24), number)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    environment = kept["environment"]
    joined = ";".join(f"{name}={value}" for name, value in environment.items())
    database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', ?)", (joined,))
    database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('OsDescription', 'Linux')")
    for name, value in environment.items():
        row = ("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", row)
    # Each process's environment as one text, too.
    environ = "\0".join(f"{name}={value}" for name, value in environment.items())
    database.execute("INSERT INTO StringIds VALUES (7, ?)", (environ,))
    database.execute("INSERT INTO StringIds VALUES (8, ?)", (environ.replace("\0", " "),))
    database.execute("CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)")
    database.execute("INSERT INTO ProcessStreams VALUES (1, 0, 8)")
    database.commit()


def ncu(words):
    options, command = parse(words, NCU)
    run(command)
    with open(options["--log-file"], "w") as file:
        file.write("==PROF== Connected to process 1\n")
        if TROUBLE == "forbidden":
            file.write("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
        elif TROUBLE != "nothing":
            file.write('"ID","Process ID","Process Name","Host Name","Kernel Name"')
            file.write(',"sm__throughput.avg.pct_of_peak_sustained_elapsed"')
            file.write(',"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"\n')
            file.write('"","","","","","%","%"\n"0","4711","python","h","gemm(float *, int)","20","90"\n')
    with open(options["--log-file"] + ".options", "w") as file:
        json.dump(options, file)


if Path(sys.argv[0]).name == "ncu":
    show_help(sys.argv[1:], NCU)
    ncu(sys.argv[1:])
elif sys.argv[-1] in ("--version", "--help"):
    show_help(sys.argv[1:], PROFILE)
else:
    {"profile": profile, "export": export}[sys.argv[1]](sys.argv[2:])
