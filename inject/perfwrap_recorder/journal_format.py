"""The format of the journal: fixed-width records that survive the process.

This docstring is the specification of FORMAT 1. Both halves use this file: ``wrapper/perfwrap/journal_format.py`` is a
link to it.

One file per process, ``journal/<host>-<pid>-<start>-<sequence>.pwj``, little-endian, a multiple of 32
bytes long. Slot 0 is the header ``<8sIIqq``: the magic ``perfwrap``, FORMAT, pid, CLOCK_MONOTONIC and
CLOCK_REALTIME (ns) when the file was opened. Every other slot is one record ``<qqqIHH``::

    start      i64  CLOCK_MONOTONIC, ns
    duration   i64  ns, 0 for an instant
    value      i64  by kind (float64 bits for SAMPLE, NON_FINITE and QUEUE)
    name       u32  id of a text, 0 for none
    thread     u16  index given by a THREAD record; 0 is the process as a whole
    kind       u16  below; 0 marks a slot that was never finished and is skipped

``kind`` is the last field so that a record cut short by SIGKILL still reads 0. Slots are claimed with
``next(itertools.count())``, which is atomic under the GIL: there is no lock that a fork could leave held.
So the order of records is only roughly that of time. A few slots at the front are reserved for END, the last
CLOCK and LOST records, which are written in place. The file grows by allocated segments (``posix_fallocate``),
because touching a sparse page on a full disk is SIGBUS. If a segment cannot be allocated, the journal ends: a
COVERAGE record of the text "journal" in one of those slots says why, and CLOCK and END are of that moment.

Texts. A TEXT record carries 24 bytes of UTF-8 in start, duration and value (zero-padded), ``name`` is the
text's id and ``thread`` the number of the piece. Pieces of one text may be anywhere, also after its
first use; a text longer than the limit (4080 bytes) is cut. When the table of texts is full, new
ones share the text ``(other)`` and a LOST record counts them.
A *label* is a text of up to five fields joined by U+001F: name, file, line, function, and, if an installed
library made the call for that line of the user, the library's ``file:line``.
A *series* is a text of two such fields: entity (``host``, ``cpu/3``, ``process/1234``, ``gpu/0``, ``disk``,
``cgroup``) and metric, whose suffix is its unit.

Kinds 1 to 31 describe; 32 to 63 are spans; 64 and up are instants with a value. The bit 0x8000 turns a span
kind into a SUM: a period without detail had ``value`` such spans of that name and thread, of ``duration`` ns
together (including what they contain). ``start`` is that of the THIN record which began the period; the period
ends where the next THIN record begins another. A sum is written when the first of its spans ends and then
updated in place, so it survives SIGKILL too.

Limited cost and size. If detail would cost too much time, or if the journal's budget runs short, periods with
detail (some neighbouring steps) and periods without alternate, and a THIN record begins each:

- ``value`` above 0: from ``start`` on spans are recorded in detail; one step in ``value`` is.
- ``value`` 0: spans are summed, because of room: when half of the budget is used, and then whenever an eighth of
  what is left is used, detail is halved, and samples are taken half as often. So a run of any length fits.
- ``value`` -1: detail is paused, for steps so short that their records would cost more than 1/400 of them. Of the
  trainer's thread DATA is summed and OPTIMIZER is counted, without a line, with a duration of 0; ZERO_GRAD, SYNC,
  TRANSFER, GETITEM, COLLATE, IDLE, PIN, SCHEDULER, CLIP, COLLECTIVE, RECOMPUTE, CLOSURE, GRADIENT, and FORWARD,
  BACKWARD and FETCH unless they end the steps, are not recorded: only periods with detail have them. The other kinds
  are summed. A kill may lose the last tenth of a second.

A call that may never return (waiting for a batch, a collective) is, while it lasts, an OPEN record in one of the
slots at the front: it shows where a process hangs. When the call returns, the slot is cleared. While detail is
paused there are none.

GPU spans are never summed: those of steps with detail are there, also if they were found later. Their times are
those of the GPU, on the host's clock; ``thread`` is an index whose THREAD record names a stream (``cuda/0 stream 0``)
and no thread. Above the 8 bits of the kind, value holds the microseconds by which the GPU came after the host at the
phase's beginning and, LEAD_BITS higher, at its end.

A step ends when one of the optimizers has stepped; in a program without one, after a backward pass, an outermost
module call or before a batch; in a DataLoader's worker with each batch (FETCH). Sums and pauses do not extend over the
start or the end of a loader's iteration, unless that would switch too often. Of the rare kinds (DATA_END,
LOADER_START, SAVE, LOAD, IMPORT, COMPILE, NON_FINITE, and full garbage collections) the first 16 of a period without
detail, or the first 256 (in longer ones a quarter of its steps) if there is room, are recorded all the same; further
NON_FINITE instants are dropped.
"""

from struct import Struct

# Records that describe.
TEXT, CLOCK, THREAD, FACT, MARK, SAMPLE, COVERAGE, LOST, THIN, END, OPEN = range(1, 12)
# CLOCK: start = monotonic, value = wall ns.       THREAD: thread = index, name = its name, value = native id.
# FACT: name = key, value = text id of the value.  MARK: name = what, value = text id of the detail or 0.
# SAMPLE: name = series, value = float64 bits.     COVERAGE: name = what is watched from start on, for
#   duration (0: to the journal's end; 1: it is not watched), value = text id of a note or 0.
# LOST: name = what, value = how many were lost.   THIN: value = stride, 0 for sums, -1 for paused detail.
# END: an orderly end.                            OPEN: name = label of a call that goes on, value = its kind.

# Spans.
DATA = 33  # next(loader); name = label of the loader, value = batch size or -1
DATA_END = 34  # the next(loader) that ended the epoch
LOADER_START = 35  # making the loader's iterator, its workers included; value = num_workers
# (in a worker: from the start of its loop until it first waits for an order)
FORWARD = 36  # outermost module call; value = TRAINING | GRAD | INFERENCE
BACKWARD = 37
OPTIMIZER = 38  # optimizer.step(); name = label with "SGD#1" as its name, the number telling instances apart
SCALER_STEP = 39  # GradScaler.step(); where it skipped the optimizer value = 1 and the label's name ends in
# " skipped"; value = -1 if that is unknown (a fused optimizer: the GPU decides)
ZERO_GRAD = 40
SYNC = 41  # a value comes to the host; name = label "Tensor.item", value = 1 if the tensor is on a GPU
SAVE = 42  # torch.save; value = bytes when known, else -1
LOAD = 43
GC = 44  # a collection; value = generation
PERFWRAP = 45  # the recorder's own work outside of the probes; value = its CPU time in ns, 0 if not measured
IMPORT = 46  # the import of torch itself
TRANSFER = 47  # a tensor changes memory; name = label "Tensor.to", value = bytes or -1 << 8 | the bits below
FETCH = 48  # a worker (or, without workers, the loader) makes one batch; value = samples or -1
GETITEM = 49  # within it, all that makes samples: the calls of dataset[index]; value = how many
COLLATE = 50  # within it, the collate function; value = bytes of the tensors that it made or -1
IDLE = 51  # a worker waits for its next order
PIN = 52  # the loader's own thread copies a batch into pinned memory; value = bytes or -1
SCHEDULER = 53  # scheduler.step(), not those inside another; name = label "StepLR.step"
CLIP = 54  # clip_grad_norm_ or clip_grad_value_; name = label with the function's name
COLLECTIVE = 55  # a call of torch.distributed's that the program makes itself; name = label "all_reduce", or
# "all_reduce async" when it only enqueues, both with " of group NAME" behind when not on all ranks; value = bytes of
# its largest argument or -1
COMPILE = 56  # torch.compile at work; name = label "compile" or "compile backward" at the first line of the function
# that is compiled, or at the line that called it; value = which compilation of that function, from 0
EMPTY_CACHE = 57  # torch.cuda.empty_cache, once CUDA is started; name = label "empty_cache"
GPU = 58  # a GPU's work on a phase, between two events; value = its kind | leads, see above;
# thread = a stream
PROFILER = 59  # the program's own torch.profiler: it starts, stops, reads or exports a recording; name = label of the
# call. Calls may be nested: "step" has the stop of a window and the program's on_trace_ready inside
RECOMPUTE = 60  # activation checkpointing computes a forward pass again, in a backward pass and its thread;
# name = label "checkpoint" at the line that called it in the first forward pass. The backward pass of a reentrant
# checkpoint is inside, as a BACKWARD span
CLOSURE = 61  # within OPTIMIZER, the function that the program has given to step(): usually forward, loss and backward
GRADIENT = 62  # torch.autograd.grad: gradients that the program uses itself

# Instants with a value.
NON_FINITE = 64  # a NaN or infinity that the program read; name = label, value = float64 bits
QUEUE = 65  # name = a loader, at the start of its DATA span; how many batches were ready, and a half more
# if later batches came before the next one in order; in periods with detail only
STACK = 66  # samples of a thread, from start on for duration; value = how many; name = label, as its name the phase

# The kinds above by their names; nothing else may be defined before.
_KINDS = {name: kind for name, kind in globals().items() if type(kind) is int}
DESCRIBE = {name: kind for name, kind in _KINDS.items() if kind < 32}
SPANS = {name: kind for name, kind in _KINDS.items() if 32 <= kind < 64}
INSTANTS = {name: kind for name, kind in _KINDS.items() if kind >= 64}

FORMAT = 1
MAGIC = b"perfwrap"
HEADER = Struct("<8sIIqq")
RECORD = Struct("<qqqIHH")
SAMPLE_RECORD = Struct("<qqdIHH")
PIECE_BYTES = 24
"""Bytes of text in one TEXT record, in place of start, duration and value."""
TEXT_RECORD = Struct("<24sIHH")
FLOAT, FLOAT_BITS = Struct("<d"), Struct("<q")
SHIFT = 5  # a slot is 32 bytes
END_SLOT, LAST_CLOCK_SLOT, LOST_RECORDS_SLOT, LOST_TEXTS_SLOT, SILENT_SLOT, FIRST_SLOT = 1, 2, 3, 4, 7, 8

SUM = 0x8000
TRAINING, GRAD, INFERENCE = 1, 2, 4
"""Bits of a FORWARD span's value."""
TO_GPU, FROM_GPU, PINNED, NON_BLOCKING = 1, 2, 4, 8
"""Bits of a TRANSFER span's value; the number of bytes is above them, shifted by 8. The first two together: between
GPUs. PINNED: the host's side."""
LEAD_BITS = 28
"""Above the 8 bits of the kind, a GPU span's value has the lead at its beginning and at its end, in us."""
STREAM_PREFIX = "cuda/"
"""Prefix of the names of THREAD records that represent GPU streams."""
FIELD_SEPARATOR = "\x1f"
"""Joins the fields of a label (name, file, line, function) and of a series (entity, metric)."""

OPEN_SLOTS = {DATA: 5, COLLECTIVE: 6}
