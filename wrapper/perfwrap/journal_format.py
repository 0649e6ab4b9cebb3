"""The journal's numbers, as the recorder's ``journal_format.py`` specifies them; a test checks that both are equal.

``wrapper/`` never imports ``inject/``: this file and the journals are all that both halves share.
"""

from __future__ import annotations

import struct

FORMAT = 1
MAGIC = b"perfwrap"
HEADER = struct.Struct("<8sIIqq")
RECORD = struct.Struct("<qqqIHH")
SAMPLE_RECORD = struct.Struct("<qqdIHH")
PIECE_BYTES = 24
"""Bytes of text in one TEXT record, in place of start, duration and value."""
TEXT_RECORD = struct.Struct(f"<{PIECE_BYTES}sIHH")
FIELDS = ("start", "duration", "value", "name", "thread", "kind")

DESCRIBE = {
    "TEXT": 1,
    "CLOCK": 2,
    "THREAD": 3,
    "FACT": 4,
    "MARK": 5,
    "SAMPLE": 6,
    "COVERAGE": 7,
    "LOST": 8,
    "THIN": 9,
    "END": 10,
    "OPEN": 11,
}
SPANS = {
    "DATA": 33,
    "DATA_END": 34,
    "LOADER_START": 35,
    "FORWARD": 36,
    "BACKWARD": 37,
    "OPTIMIZER": 38,
    "SCALER_STEP": 39,
    "ZERO_GRAD": 40,
    "SYNC": 41,
    "SAVE": 42,
    "LOAD": 43,
    "GC": 44,
    "PERFWRAP": 45,
    "IMPORT": 46,
    "TRANSFER": 47,
    "FETCH": 48,
    "GETITEM": 49,
    "COLLATE": 50,
    "IDLE": 51,
    "PIN": 52,
    "SCHEDULER": 53,
    "CLIP": 54,
    "COLLECTIVE": 55,
    "COMPILE": 56,
    "EMPTY_CACHE": 57,
    "GPU": 58,
}
INSTANTS = {"NON_FINITE": 64, "QUEUE": 65, "STACK": 66}
SUM = 0x8000
TRAINING, GRAD, INFERENCE = 1, 2, 4
"""Bits of a FORWARD span's value."""
TO_GPU, FROM_GPU, PINNED, NON_BLOCKING = 1, 2, 4, 8
"""Bits of a TRANSFER span's value; the number of bytes is above them, shifted by 8."""

LEAD_BITS = 28
"""Above the 8 bits of the kind, a GPU span's value has the lead at its beginning and at its end, in us."""
STREAM_PREFIX = "cuda/"
"""Prefix of the names of THREAD records that represent GPU streams."""

FIELD_SEPARATOR = "\x1f"
"""Joins the fields of a label (name, file, line, function) and of a series (entity, metric)."""
