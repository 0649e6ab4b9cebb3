"""The timeline: one model of the recorded data, independent of its source."""
