"""GPUs: NVIDIA by NVML, AMD by amdsmi."""
