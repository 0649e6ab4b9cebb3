"""Every metric that is exported: name, unit and meaning. docs/exporting.md has the same list."""

from __future__ import annotations

from msgspec import Struct


class Metric(Struct, frozen=True):
    """A metric. The unit is in the format of OpenTelemetry (UCUM): ``s``, ``By``, ``1`` for a share."""

    name: str
    unit: str
    description: str


STEPS = Metric("steps", "{step}", "Training steps that were recorded.")
STEADY_STEPS = Metric("steady_steps", "{step}", "Steps after the warm-up.")
STEP_TIME = Metric("step_time", "s", "Duration of a training step.")
SLOWEST_STEP = Metric("slowest_step_time", "s", "Duration of the slowest step of each point.")
SAMPLES = Metric(
    "samples_per_second", "{sample}/s", "Samples per second of all processes that train at the same time."
)
DURATION = Metric("run_duration", "s", "Duration of the command.")
ACCOUNT = Metric("account", "1", "Share of a part in the steady training loop.")
VERDICT = Metric("verdict", "1", "Share of the training loop that the verdict is based on.")
FINDING = Metric("finding", "1", "Share of the training loop that is attributed to a rule.")
SAVING = Metric("finding_step_time", "1", "Step time after the fix divided by the present step time.")
COST = Metric("own_cost", "1", "Overhead of perfwrap as a share of the training loop.")
GPU_BUSY = Metric("gpu_busy", "1", "Share of the recorded windows in which the GPU was busy.")
GPU_MFU = Metric(
    "gpu_mfu",
    "1",
    "Model FLOPs utilization (MFU): matrix operations divided by the peak in the precision used.",
)

GPU_UTILIZATION = Metric("gpu_utilization", "1", "Share of the time in which at least one kernel ran.")
GPU_SM = Metric("gpu_sm_activity", "1", "Share of multiprocessors in use.")
GPU_TENSOR = Metric("gpu_tensor_activity", "1", "Share of the time in which tensor cores were in use.")
GPU_DRAM = Metric("gpu_dram_activity", "1", "Share of the GPU memory bandwidth in use.")
GPU_MEMORY = Metric("gpu_memory_used", "By", "GPU memory in use by all processes.")
GPU_POWER = Metric("gpu_power", "W", "Power draw of the GPU.")
GPU_CLOCK = Metric("gpu_sm_clock", "Hz", "Clock of the GPU's multiprocessors.")
GPU_TEMPERATURE = Metric("gpu_temperature", "Cel", "Temperature of the GPU.")
GPU_THROTTLED = Metric("gpu_throttled", "1", "Share of the time in which the GPU was throttled.")

HOST_BUSY = Metric("host_cpu_busy", "{core}", "Busy CPU cores of the machine, for all processes.")
HOST_AVAILABLE = Metric("host_memory_available", "By", "Available memory of the machine.")
RUN_BUSY = Metric("run_cpu_busy", "{core}", "CPU cores used by the processes of the run.")

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
"""The sum over all processes of the run."""

METRICS = (
    *(STEPS, STEADY_STEPS, STEP_TIME, SLOWEST_STEP, SAMPLES, DURATION),
    *(ACCOUNT, VERDICT, FINDING, SAVING, COST, GPU_BUSY, GPU_MFU),
    *OF_GPU.values(),
    *OF_HOST.values(),
    *OF_PROCESSES.values(),
)
