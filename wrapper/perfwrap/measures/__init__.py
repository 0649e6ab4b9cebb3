"""Figures computed from the timeline: a folder per topic, a file per measure; rules ask ``evidence`` for them."""
