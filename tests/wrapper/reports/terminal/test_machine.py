from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs
from perfwrap.diagnosis.model import Diagnosis, Gpu

Draw = Callable[..., str]


def gpu(number: int, **values: object) -> Gpu:
    """Return a busy GPU."""
    plain = Gpu(
        track=number,
        name=f"NVIDIA H100 80GB HBM3 (gpu/{number})",
        utilization=0.95,
        memory_used_bytes=41.0 * 2**30,
        memory_total_bytes=80.0 * 2**30,
        power_watts=348.0,
        throttled_share=0.0,
        throttle_reasons=(),
        power_limit_watts=700.0,
    )
    return structs.replace(plain, **values)  # type: ignore[arg-type]


ACTIVITY = {"sm": 0.31, "occupancy": 0.2, "tensor": 0.04, "fp64": 0.0, "fp32": 0.12, "dram": 0.22}


def section(text: str) -> list[str]:
    """Return the lines about the GPUs."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("GPUs"))
    end = next(number for number in range(begin, len(lines)) if not lines[number])
    return lines[begin:end]


def test_what_the_gpu_s_units_did_is_beside_the_duty_cycle(diagnosis: Diagnosis, drawn: Draw) -> None:
    lines = section(drawn(replace(diagnosis, gpus=(gpu(0, activity=ACTIVITY), gpu(1)))))
    assert lines[0] == "GPUs, mean over the steady steps: 2 x NVIDIA H100 80GB HBM3"
    assert lines[1].split() == ["busy", "SMs", "tensor", "FP32", "DRAM", "power", "memory"]
    assert lines[2].split()[:9] == ["gpu/0", "95", "%", "31", "%", "4.0", "%", "12", "%"]
    assert lines[2].endswith("350 of 700 W  41 GiB of 80 GiB")
    assert lines[3].split()[:7] == ["gpu/1", "95", "%", "-", "-", "-", "-"]
    assert "at least one kernel ran, however small" in " ".join(" ".join(lines).split())
    assert max(len(line) for line in lines) <= 80


def test_gpus_that_report_only_the_duty_cycle_are_not_taken_for_idle(
    diagnosis: Diagnosis, drawn: Draw
) -> None:
    lines = section(drawn(replace(diagnosis, gpus=(gpu(0),))))
    assert lines[1].split() == ["busy", "power", "memory"]
    assert "do not report" in " ".join(lines)


def test_throttling_and_other_people_are_said(diagnosis: Diagnosis, drawn: Draw) -> None:
    slow = gpu(
        3,
        throttled_share=0.4,
        throttle_reasons=("hardware_heat", "power_cap"),
        other_processes=2.0,
        other_memory_used_bytes=12.0 * 2**30,
    )
    alike = structs.replace(slow, name="NVIDIA H100 80GB HBM3 (gpu/5)", throttled_share=0.2)
    text = " ".join(section(drawn(replace(diagnosis, gpus=(slow,)))))
    assert "- gpu/3: clocks lowered 40 % of the time (hardware heat, power cap)." in text
    assert "- Processes of other users or jobs also used gpu/3, with 12 GiB of memory." in text
    text = " ".join(line.strip() for line in section(drawn(replace(diagnosis, gpus=(slow, gpu(4), alike)))))
    assert "- gpu/3, gpu/5: clocks lowered up to 40 % of the time (hardware heat, power cap)." in text
    assert "also used gpu/3, gpu/5, with 24 GiB of memory." in text


def test_means_over_a_run_without_a_steady_loop_are_called_so(diagnosis: Diagnosis, drawn: Draw) -> None:
    lines = section(drawn(replace(diagnosis, gpus=(gpu(0),), account={})))
    assert lines[0].startswith("GPUs, mean over the whole run: ")


def test_without_a_watched_gpu_there_is_no_such_section(diagnosis: Diagnosis, drawn: Draw) -> None:
    unknown = gpu(0, utilization=None)
    assert drawn(replace(diagnosis, gpus=(unknown,))) == drawn(diagnosis)


def test_very_many_gpus_do_not_fill_the_screen(diagnosis: Diagnosis, drawn: Draw) -> None:
    lines = section(drawn(replace(diagnosis, gpus=tuple(gpu(number) for number in range(20)))))
    assert "  and 4 more GPUs" in lines
    assert len(lines) < 24
