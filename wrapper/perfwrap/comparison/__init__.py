"""Compares runs: what changed, and whether it is more than noise, or why the runs cannot be compared.

noise.py is about step times, obstacles.py about reasons not to compare, differences.py about the breakdown of the step
time, findings and conditions; comparing.py combines them. Only the ``diagnosis.json`` of each run is needed.
"""
