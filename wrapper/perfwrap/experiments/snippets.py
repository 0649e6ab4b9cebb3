"""What to write if no argument of a call can be replaced: some lines and where to put them."""

from __future__ import annotations

from perfwrap.experiments.variants import name_of, value_of

LINES: dict[str, str] = {
    "bf16": "with torch.autocast(device_type=device.type, dtype=torch.bfloat16):  # around the forward pass{at}",
    "fp16": 'with torch.autocast(device_type="cuda", dtype=torch.float16):  # around the forward pass{at}; the '
    'backward pass needs torch.amp.GradScaler("cuda")',
    "tf32": 'torch.set_float32_matmul_precision("high")  # once, before the training{at}',
    "cudnn-benchmark": "torch.backends.cudnn.benchmark = True  # once, before the training{at}",
    "compile": "model = torch.compile(model{mode})  # after the model is on its device{at}",
    "channels-last": "model = model.to(memory_format=torch.channels_last)  # and the same for the images{at}",
    "gc-freeze": "gc.collect(); gc.freeze()  # once, after the first steps; with `import gc`{at}",
    "threads": "torch.set_num_threads({value})  # once, before the training; or OMP_NUM_THREADS={value} before the "
    "command{at}",
    "workers": "num_workers={value}  # an argument of the DataLoader{at}",
    "prefetch": "prefetch_factor={value}  # an argument of the DataLoader{at}",
    "pin-memory": "pin_memory=True  # an argument of the DataLoader{at}",
    "persistent-workers": "persistent_workers=True  # an argument of the DataLoader{at}",
    "batch-size": "batch_size={value}  # an argument of the DataLoader{at}; adapt the learning rate if necessary",
    "non-blocking": "non_blocking=True  # an argument of .to() and .cuda(){at}",
    "fused-optimizer": "fused=True  # an argument of the optimizer{at}",
    "set-to-none": "set_to_none=True  # an argument of zero_grad(){at}",
    "no-empty-cache": "# remove torch.cuda.empty_cache(){at}",
    "no-debug": "torch.autograd.set_detect_anomaly(False)  # and remove other debugging{at}",
    "expandable-segments": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # before the command",
}
"""By change; a ceiling has none, because it is not an edit."""

TRAINING_ARGUMENTS: dict[str, str] = {
    "workers": "dataloader_num_workers={value}",
    "prefetch": "dataloader_prefetch_factor={value}",
    "pin-memory": "dataloader_pin_memory=True",
    "persistent-workers": "dataloader_persistent_workers=True",
    "batch-size": "per_device_train_batch_size={value}",
    "bf16": "bf16=True",
    "fp16": "fp16=True",
    "tf32": "tf32=True",
    "compile": "torch_compile=True",
    "fused-optimizer": 'optim="adamw_torch_fused"',
}
"""The same as arguments of Hugging Face's TrainingArguments, whose Trainer creates loaders and optimizers itself.
https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments"""

CEILINGS: dict[str, str] = {
    "cached-batch": "No edit: this is the step time if batches took no time.",
    "defer-item": "No edit: this is the step time without reading values in each step; read them every N steps.",
    "no-checkpoint": "No edit: this is the step time without checkpoints; save less often, or in a thread.",
    "no-validation": "No edit: this is the step time without validation; validate less often, or on fewer samples.",
}


def snippet(change: str, place: str, in_transformers: bool = False) -> str | None:
    """Return what to write for a change; ``place`` is e.g. ``train.py:31``, or empty if unknown."""
    name, value = name_of(change), value_of(change)
    if name in CEILINGS:
        return CEILINGS[name]
    if in_transformers and name in TRAINING_ARGUMENTS:
        return f"{TRAINING_ARGUMENTS[name].format(value=value)}  # an argument of TrainingArguments"
    if name not in LINES:
        return None
    mode = f', mode="{value}"' if value else ""
    return LINES[name].format(value=value, mode=mode, at=f", {place}" if place else "")
