"""The journal: what a process has to say, in fixed-width records that outlive it.

This docstring is the specification of FORMAT 1.

One file per process, ``journal/<host>-<pid>-<start>-<sequence>.pwj``, little-endian, a multiple of 32
bytes long. Slot 0 is the header ``<8sIIqq``: the magic ``perfwrap``, FORMAT, pid, CLOCK_MONOTONIC and
CLOCK_REALTIME (ns) when the file was opened. Every other slot is one record ``<qqqIHH``::

    start      i64  CLOCK_MONOTONIC, ns
    duration   i64  ns, 0 for an instant
    value      i64  by kind (float64 bits for SAMPLE and NON_FINITE)
    name       u32  id of a text, 0 for none
    thread     u16  index given by a THREAD record; 0 is the process as a whole
    kind       u16  below; 0 marks a slot that was never finished and is skipped

``kind`` is the last field so that a record cut short by SIGKILL still reads 0. Slots are claimed with
``next(itertools.count())``, which is atomic under the GIL: there is no lock that a fork could leave held.
The file grows by segments that are allocated for real (``posix_fallocate``), because touching a sparse
page on a full disk is SIGBUS. When a segment cannot be had the journal goes silent and stays silent.

Texts. A TEXT record carries 24 bytes of UTF-8 in start, duration and value (zero-padded), ``name`` is the
text's id and ``thread`` the number of the piece. Pieces of one text may stand anywhere, also after its
first use. A *label* is a text of up to four fields joined by U+001F: name, file, line, function.
A *series* is a text of two such fields: entity (``host``, ``cpu/3``, ``process/1234``, ``gpu/0``, ``disk``,
``cgroup``) and metric, whose suffix is its unit.

Kinds 1 to 31 describe; 32 to 63 are spans; 64 and up are instants with a value. The bit 0x8000 turns a
span kind into a SUM: between ``start`` and the record's place in the file, steps whose detail was thinned
away held ``value`` such spans of ``duration`` ns together (inclusive of what they contain).

Bounded. Each journal has a budget. Whenever half of what is left of it is used, the recorder halves its
detail (a THIN record says: from here on every ``value``-th step in detail) and the sums of the other steps
are written once per that many steps, so a run of any length fits and its sums stay exact.
"""

FORMAT = 1

# Records that describe.
TEXT, CLOCK, THREAD, FACT, MARK, SAMPLE, COVERAGE, LOST, THIN, END = range(1, 11)
# CLOCK: start = monotonic, value = wall ns.          THREAD: thread = index, name = its name, value = native id.
# FACT: name = key, value = text id of the value.     MARK: name = what, value = text id of the detail or 0.
# SAMPLE: name = series, value = float64 bits.        COVERAGE: name = what is watched from start on, for
#   duration (0: to the journal's end), value = text id of a note or 0.
# LOST: name = what, value = how many were lost.      THIN: value = stride.      END: an orderly end.

# Spans.
DATA = 33  # next(loader); name = label of the loader, value = batch size or -1
DATA_END = 34  # the next(loader) that ended the epoch
LOADER_START = 35  # making the loader's iterator, its workers included; value = num_workers
FORWARD = 36  # outermost module call; value = TRAINING | GRAD | INFERENCE
BACKWARD = 37
OPTIMIZER = 38  # optimizer.step(); name = label with "SGD#1" as its name, the number telling instances apart
SCALER_STEP = 39  # GradScaler.step(), which may skip the optimizer inside
ZERO_GRAD = 40
SYNC = 41  # a value comes to the host; name = label "Tensor.item", value = 1 when the tensor is on a GPU
SAVE = 42  # torch.save; value = bytes when known, else -1
LOAD = 43
GC = 44  # a collection; value = generation
PERFWRAP = 45  # the recorder's own work outside of the probes
IMPORT = 46  # the import of torch itself

# Instants with a value.
NON_FINITE = 64  # a NaN or infinity that the program read; name = label, value = float64 bits

SUM = 0x8000
TRAINING, GRAD, INFERENCE = 1, 2, 4
