"""What a host is, from this machine and from made-up ones."""

from __future__ import annotations

import os
from typing import Any

import pytest
from perfwrap.monitors.host import host_facts


def test_facts_are_what_the_machine_says() -> None:
    facts = host_facts.facts()
    assert int(facts["cores_online"]) == os.cpu_count()
    assert float(facts["cores_usable"]) <= len(os.sched_getaffinity(0))
    assert int(facts["memory_total_bytes"]) > 1 << 20
    assert facts["kernel"] == os.uname().release
    status = os.statvfs("/dev/shm")
    assert int(facts["shm_total_bytes"]) == status.f_blocks * status.f_frsize
    assert all(facts.values())


def test_a_quota_below_the_affinity_decides_how_many_cores_are_usable(made_up: Any) -> None:
    top = made_up.version_2()
    made_up.write(top / "work/cpu.max", "50000 100000\n")
    made_up.write(top / "work/memory.max", "1073741824\n")
    made_up.write(top / "work/job/cpu.max", "max 100000\n")
    facts = host_facts.facts(made_up.root)
    assert (facts["cpu_quota_cores"], facts["cores_usable"]) == ("0.5", "0.5")
    assert facts["memory_limit_bytes"] == "1073741824"


def test_what_a_machine_does_not_say_is_absent(made_up: Any) -> None:
    made_up.root.mkdir()
    assert set(host_facts.facts(made_up.root)) == {
        "cores_online",
        "cores_affinity",
        "cores_usable",
        "memory_total_bytes",
        "kernel",
        "container",
    }


def test_each_gpu_is_reported_with_its_node(made_up: Any) -> None:
    for node, cpus in (("node0", "0-31,64-95"), ("node1", "32-63,96-127")):
        made_up.write(f"sys/devices/system/node/{node}/cpulist", f"{cpus}\n")
    devices = {
        "0000:17:00.0": ("0x10de", "0x030200", "0"),
        "0000:CA:00.0": ("0x10de", "0x030000", "1"),
        "0000:ca:00.1": ("0x10de", "0x040300", "1"),
        "0000:00:02.0": ("0x8086", "0x030000", "0"),
        "0000:03:00.0": ("0x1002", "0x120000", "-1"),
    }
    for name, (vendor, kind, node) in devices.items():
        for file, text in (("vendor", vendor), ("class", kind), ("numa_node", node)):
            made_up.write(f"sys/bus/pci/devices/{name}/{file}", f"{text}\n")
    facts = host_facts.facts(made_up.root)
    assert facts["numa_nodes"] == "2"
    assert facts["numa/1/cpus"] == "32-63,96-127"
    assert {key: value for key, value in facts.items() if key.startswith("pci/")} == {
        "pci/0000:17:00.0/numa_node": "0",
        "pci/0000:ca:00.0/numa_node": "1",
    }


CPUINFO = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu vme hypervisor lahf_lm\n"


def test_the_processor_is_reported_with_its_governor_and_threads(made_up: Any) -> None:
    made_up.write("proc/cpuinfo", CPUINFO.replace(" hypervisor", ""))
    cpus = "sys/devices/system/cpu"
    for cpu, governor in enumerate(("powersave", "performance", "powersave")):
        made_up.write(f"{cpus}/cpu{cpu}/cpufreq/scaling_governor", f"{governor}\n")
    made_up.write(f"{cpus}/cpu0/cpufreq/cpuinfo_max_freq", "3700000\n")
    made_up.write(f"{cpus}/cpu0/topology/thread_siblings_list", "0,64\n")
    facts = host_facts.facts(made_up.root)
    assert facts["cpu_model"] == "Some CPU @ 2 GHz"
    assert facts["cpu_governor"] == "performance, powersave"
    assert facts["cpu_max_hertz"] == "3700000000"
    assert facts["cpu_threads_per_core"] == "2"
    assert facts["virtualisation"] == "none seen"


@pytest.mark.parametrize(
    ("flags", "features"),
    [
        ("flags\t\t: fpu avx2 avx512f amx_bf16 avx512_bf16_not", "amx_bf16 avx2 avx512f"),
        ("Features\t: fp asimd asimdhp bf16", "asimdhp bf16"),
        ("flags\t\t: fpu sse4_2", "none seen"),
        ("isa\t\t: rv64imafdc", None),
    ],
)
def test_the_processors_vector_units_are_reported(made_up: Any, flags: str, features: str | None) -> None:
    made_up.write("proc/cpuinfo", f"processor\t: 0\n{flags}\n")
    assert host_facts.facts(made_up.root).get("cpu_features") == features


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  Release Build  (dvs)\n"
            "GCC version:  gcc version 12.3.0\n",
            "570.86",
        ),
    ],
)
def test_the_driver_is_reported_without_loading_its_library(made_up: Any, text: str, version: str) -> None:
    made_up.write("proc/driver/nvidia/version", text)
    made_up.write("usr/local/cuda/version.json", '{"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}}')
    facts = host_facts.facts(made_up.root)
    assert facts["nvidia_kernel_driver"] == version
    assert facts["cuda_toolkit"] == "12.4.1"


@pytest.mark.parametrize(
    ("file", "text", "container"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "engine=podman\n", "podman"),
        (
            "proc/self/cgroup",
            "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n",
            "kubepods",
        ),
        ("proc/self/cgroup", "5:memory:/docker/abc\n", "docker"),
        ("proc/self/cgroup", "0::/system.slice/docker.service\n", "none seen"),
    ],
)
def test_a_virtual_machine_and_a_container_are_reported(
    made_up: Any, file: str, text: str, container: str
) -> None:
    made_up.write("proc/cpuinfo", CPUINFO)
    made_up.write("sys/class/dmi/id/sys_vendor", "QEMU\n")
    made_up.write(file, text)
    facts = host_facts.facts(made_up.root)
    assert facts["virtualisation"] == "virtual machine"
    assert facts["machine"] == "QEMU"
    assert facts["container"] == container
