"""What the programs of test_identity.py share: imports torch, and holds what stood there while it was imported.

Runs bare and wrapped, on Python 3.8 and later with torch 2.0 and later.
"""

import builtins
import os
import re
import sys
import threading

TENSOR = """item tolist numpy nonzero equal allclose is_nonzero masked_select __bool__ __float__ __int__ __complex__
__index__ __repr__ __format__ to cuda cpu copy_ pin_memory backward detach sum""".split()

WATCHED = (
    ["torch:Tensor." + name for name in TENSOR]
    + """
torch:nn.Module.__call__ torch:nn.Module._wrapped_call_impl torch:nn.Module._call_impl torch:nn.Module.to
torch:nn.Module.cuda torch:nn.Module.cpu torch:nn.Module.zero_grad torch:nn.Module.__init__
torch:nn.Linear.__call__ torch:nn.Linear.forward torch:nn.Sequential.__call__
torch:optim.Optimizer.zero_grad torch:optim.Optimizer.step torch:optim.Optimizer.__init__
torch:optim.Optimizer.add_param_group torch:optim.SGD.zero_grad
torch.optim.lr_scheduler:LRScheduler.step torch.optim.lr_scheduler:ReduceLROnPlateau.step
torch.optim.lr_scheduler:StepLR.step torch.optim.lr_scheduler:SequentialLR.step
torch.optim.lr_scheduler:ChainedScheduler.step torch.optim.lr_scheduler:CosineAnnealingWarmRestarts.step
torch.optim.lr_scheduler:OneCycleLR.step torch.optim.lr_scheduler:CyclicLR.step
torch.optim.lr_scheduler:LambdaLR.step
torch.nn.utils:clip_grad_norm_ torch.nn.utils:clip_grad_value_
torch.nn.utils.clip_grad:clip_grad_norm_ torch.nn.utils.clip_grad:clip_grad_value_
torch.nn.utils:clip_grad_norm
torch:save torch:load torch.serialization:save torch.serialization:load
torch.autograd:backward torch.autograd:grad
torch.utils.data:DataLoader.__init__ torch.utils.data:DataLoader.__iter__ torch.utils.data:DataLoader.__len__
torch.utils.data:DataLoader._get_iterator torch.utils.data:DataLoader.check_worker_number_rationality
torch.utils.data:DataLoader.__setattr__
torch.utils.data.dataloader:_BaseDataLoaderIter.__next__ torch.utils.data.dataloader:_BaseDataLoaderIter.__iter__
torch.utils.data.dataloader:_SingleProcessDataLoaderIter.__next__
torch.utils.data.dataloader:_SingleProcessDataLoaderIter._next_data
torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__next__
torch.utils.data._utils.fetch:_MapDatasetFetcher.fetch torch.utils.data._utils.fetch:_IterableDatasetFetcher.fetch
torch.utils.data._utils.worker:_worker_loop torch.utils.data._utils.pin_memory:_pin_memory_loop
torch.utils.data._utils.collate:default_collate
torch.amp.grad_scaler:GradScaler.step torch.cuda.amp.grad_scaler:GradScaler.step torch.cuda.amp:GradScaler.update
torch:set_num_threads torch:set_num_interop_threads torch:get_num_threads torch:set_float32_matmul_precision
torch._C:_set_float32_matmul_precision torch:use_deterministic_algorithms
torch.autograd.anomaly_mode:detect_anomaly.__init__ torch.autograd.anomaly_mode:set_detect_anomaly.__init__
torch.autograd:detect_anomaly.__enter__
torch.profiler:profile.start torch.profiler:profile.__enter__ torch.profiler:profile.step
torch.profiler:profile.stop torch.profiler:profile.stop_trace torch.profiler:profile.key_averages
torch.profiler:profile.export_chrome_trace torch.autograd.profiler_util:EventList.table
torch.autograd.profiler_util:EventList.key_averages torch.autograd.profiler:profile.key_averages
torch.utils.checkpoint:checkpoint torch.utils.checkpoint:CheckpointFunction.forward
torch.utils.checkpoint:CheckpointFunction.backward torch.utils.checkpoint:_CheckpointFrame.__init__
torch.utils.checkpoint:_recomputation_hook.__init__
torch.utils.checkpoint:_CheckpointFrame.check_recomputed_tensors_match
torch.autograd.profiler:profile.__enter__ torch.autograd.profiler:profile.__exit__
torch.autograd.profiler:_prepare_profiler torch.autograd.profiler:_enable_profiler
torch.autograd:_prepare_profiler torch.autograd:_enable_profiler torch.autograd:_enable_profiler_legacy
torch.cuda:set_sync_debug_mode torch.cuda:synchronize torch.cuda:empty_cache torch.cuda.memory:empty_cache
torch.cuda:Stream.synchronize torch.cuda:Event.synchronize torch.cuda:CUDAGraph.capture_begin
torch.cuda:CUDAGraph.capture_end torch._C:_cuda_synchronize
torch.accelerator:synchronize torch._C:_accelerator_synchronizeDevice
torch.xpu:synchronize torch.xpu:Stream.synchronize torch.xpu:Event.synchronize torch._C:_xpu_synchronize
torch.mps:synchronize torch._C:_mps_deviceSynchronize
torch.distributed:all_reduce torch.distributed:broadcast torch.distributed:all_gather
torch.distributed:reduce_scatter torch.distributed:all_to_all torch.distributed:barrier
torch.distributed:all_gather_object torch.distributed:broadcast_object_list torch.distributed:send
torch.distributed:recv torch.distributed:new_group torch.distributed:init_process_group
torch.distributed:monitored_barrier torch.distributed.distributed_c10d:all_reduce
torch.nn.parallel:DistributedDataParallel._ddp_init_helper torch.nn.parallel:DistributedDataParallel._sync_buffers
torch.nn.parallel:DistributedDataParallel._post_forward torch.nn.parallel:DistributedDataParallel.forward
torch.nn.parallel:DistributedDataParallel.no_sync torch.nn.parallel:DataParallel.forward
""".split()
)
"""MODULE:NAME of what perfwrap's probes are about, under the names that programs use, and some neighbours."""
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "instrumented.txt")) as found:
    INSTRUMENTED = [path for path in found.read().split() if path != "multiprocessing.util:_exit_function"]
"""What the probes instrument, which instrumented.py has found out; the programs call all with arguments that are wrong
for torch's functions, and this one would end all processes that they start later."""
WATCHED += [path for path in INSTRUMENTED if path not in WATCHED]

HOOKED = ["torch:optim.SGD.step", "torch:optim.Adam.step", "torch:optim.AdamW.step", "torch:optim.LBFGS.step"]
"""torch itself replaces these, when the first object of their class is made."""

LATE = """
torch._dynamo.callback:CompilationCallbackHandler.run_start_callbacks
torch._dynamo.callback:CompilationCallbackHandler.run_end_callbacks
torch._dynamo.callback:CallbackHandler.run_start_callbacks
torch._dynamo.callback:CallbackHandler.run_end_callbacks
torch._dynamo.trace_rules:get_tensor_method torch._dynamo.trace_rules:check_verbose
torch._dynamo.trace_rules:check torch._dynamo.utils:is_compiling torch:compile torch._dynamo:optimize
""".split()
"""Of parts that are not imported with torch."""


class Lacks(Exception):
    """This version of torch does not have it."""


def resolve(path):
    """Return what stands at MODULE:NAME now."""
    module, _, name = path.partition(":")
    if module not in sys.modules:
        raise Lacks(path)
    found = sys.modules[module]
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Lacks(path) from None
    return found


EARLY = {}
"""What stood there in the moment in which it could first be had."""


def _hold():
    for path in WATCHED:
        if path not in EARLY:
            try:
                EARLY[path] = resolve(path)
            except Lacks:
                pass


def _importing(*arguments, **named):
    imported = _import(*arguments, **named)
    if threading.get_ident() == _importer:
        _hold()
    return imported


_importer = threading.get_ident()
_import, builtins.__import__ = builtins.__import__, _importing
try:
    import torch
    import torch.utils.checkpoint  # Some versions of torch import it only when a program does.
finally:
    builtins.__import__ = _import
_hold()
del _import

EARLY_SET = set()
for _path in EARLY:
    EARLY_SET.add(EARLY[_path])
EARLY_HASHES = {path: hash(found) for path, found in EARLY.items()}

torch.set_num_threads(1)
torch.manual_seed(0)
sys.setswitchinterval(0.005)


def scrub(text):
    """Leave out what differs from run to run: addresses."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x", str(text))


def said(function, *arguments, **named):
    """Return what a function returns, or the error in words."""
    try:
        return function(*arguments, **named)
    except Lacks as error:
        return {"lacks": str(error)}
    except BaseException as error:
        return [type(error).__name__, scrub(error)]


def outcome(function):
    """Return what a whole behaviour returns, or say that it failed, which is an error of the test's own."""
    try:
        return function()
    except Lacks as error:
        return {"lacks": str(error)}
    except BaseException as error:
        return {"failed": [type(error).__name__, scrub(error)]}


class Training:
    """Steps of less than a millisecond."""

    def __init__(self):
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0)
        self.batch = torch.ones(2)
        self.many = 0

    def step(self):
        """Take one."""
        self.optimizer.zero_grad()
        loss = self.model(self.batch).sum()
        loss.backward()
        self.optimizer.step()
        self.many += 1
        return loss.item()

    def steps(self, many):
        """Take many."""
        for _ in range(many):
            self.step()

    def steps_until_a_pause(self, many):
        """Take many, and more until detail is paused; bare nothing is paused."""
        self.steps(many)
        recorder = sys.modules.get("perfwrap_recorder.journal.paused_detail")
        for _ in range(20_000):
            if recorder is None or recorder.paused:
                break
            self.step()
