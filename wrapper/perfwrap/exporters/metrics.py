"""Every metric that is exported: name, unit and meaning. docs/exporting.md has the same list."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """What a number is. The unit is as OpenTelemetry writes it (UCUM): ``s``, ``By``, ``1`` for a share."""

    name: str
    unit: str
    told: str


STEPS = Metric("steps", "{step}", "Training steps that were recorded.")
STEADY_STEPS = Metric("steady_steps", "{step}", "Steps after the warm-up.")
STEP_TIME = Metric("step_time", "s", "Duration of a training step.")
SLOWEST_STEP = Metric("slowest_step_time", "s", "Duration of the slowest step of each point.")
SAMPLES = Metric(
    "samples_per_second", "{sample}/s", "Samples per second, of all trainers at work at the same time."
)
DURATION = Metric("run_duration", "s", "From the start of the command to its end.")
ACCOUNT = Metric("account", "1", "Share of the steady training loop that a part takes.")
VERDICT = Metric("verdict", "1", "Share of the training loop that the verdict rests on.")
FINDING = Metric("finding", "1", "Share of the training loop that the findings of a rule claim.")
SAVING = Metric("finding_step_time", "1", "Step time after the fix over the step time now.")
COST = Metric("own_cost", "1", "Share of the training loop that perfwrap itself took.")
GPU_BUSY = Metric("gpu_busy", "1", "Share of the recorded windows in which the GPU was at work.")
GPU_MFU = Metric("gpu_mfu", "1", "Matrix work over the peak of the GPU in the precision used.")

GPU_UTILIZATION = Metric("gpu_utilization", "1", "Share of the time in which some kernel ran.")
GPU_SM = Metric("gpu_sm_activity", "1", "Share of the multiprocessors that were at work.")
GPU_TENSOR = Metric("gpu_tensor_activity", "1", "Share of the time in which tensor cores worked.")
GPU_DRAM = Metric("gpu_dram_activity", "1", "Share of the bandwidth of the GPU's memory.")
GPU_MEMORY = Metric("gpu_memory_used", "By", "Memory of the GPU in use, by everybody.")
GPU_POWER = Metric("gpu_power", "W", "Power that the GPU draws.")
GPU_CLOCK = Metric("gpu_sm_clock", "Hz", "Clock of the GPU's multiprocessors.")
GPU_TEMPERATURE = Metric("gpu_temperature", "Cel", "Temperature of the GPU.")
GPU_THROTTLED = Metric("gpu_throttled", "1", "Share of the time in which the GPU kept its clock down.")

HOST_BUSY = Metric("host_cpu_busy", "{core}", "Cores of the machine that were at work, for everybody.")
HOST_AVAILABLE = Metric("host_memory_available", "By", "Memory of the machine that could still be had.")
RUN_BUSY = Metric("run_cpu_busy", "{core}", "Cores that the processes of the run used.")

OF_GPU = {
    "utilization_share": GPU_UTILIZATION,
    "sm_activity_share": GPU_SM,
    "tensor_activity_share": GPU_TENSOR,
    "dram_activity_share": GPU_DRAM,
    "memory_used_bytes": GPU_MEMORY,
    "power_watts": GPU_POWER,
    "sm_clock_hertz": GPU_CLOCK,
    "temperature_celsius": GPU_TEMPERATURE,
    "throttled_share": GPU_THROTTLED,
}
"""By the monitors' series of a GPU; see docs/monitors.md."""
OF_HOST = {"cpu_cores_busy": HOST_BUSY, "memory_available_bytes": HOST_AVAILABLE}
OF_PROCESSES = {"cpu_cores": RUN_BUSY}
"""Of all processes of the run together."""

METRICS = (
    *(STEPS, STEADY_STEPS, STEP_TIME, SLOWEST_STEP, SAMPLES, DURATION),
    *(ACCOUNT, VERDICT, FINDING, SAVING, COST, GPU_BUSY, GPU_MFU),
    *OF_GPU.values(),
    *OF_HOST.values(),
    *OF_PROCESSES.values(),
)
