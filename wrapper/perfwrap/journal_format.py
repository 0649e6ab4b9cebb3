"""The journal's numbers, as the recorder's ``journal.py`` specifies them; a test holds both to be equal.

``wrapper/`` never imports ``inject/``: this page is what both halves agree on, besides the files themselves.
"""

from __future__ import annotations

import struct

FORMAT = 1
MAGIC = b"perfwrap"
HEADER = struct.Struct("<8sIIqq")
RECORD = struct.Struct("<qqqIHH")
SAMPLE_RECORD = struct.Struct("<qqdIHH")
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
}
INSTANTS = {"NON_FINITE": 64}
SUM = 0x8000
TRAINING, GRAD, INFERENCE = 1, 2, 4
"""Bits of a FORWARD span's value."""

FIELD_SEPARATOR = "\x1f"
"""Joins the fields of a label (name, file, line, function) and of a series (entity, metric)."""
