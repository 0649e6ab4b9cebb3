"""The dataflow windows of ``perfwrap inspect``: what each operation of a few steps read, wrote and took."""
