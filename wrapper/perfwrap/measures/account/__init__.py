"""Where the time of the steady loop goes: every nanosecond in exactly one part."""
