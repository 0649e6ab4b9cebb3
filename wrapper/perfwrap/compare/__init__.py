"""Several runs side by side: what changed, with its noise, or why they cannot be compared.

noise.py for step times, obstacles.py for what stands in the way, differences.py for account, findings and conditions,
comparison.py for all of it together. A run is what its ``diagnosis.json`` says: nothing else is needed of it.
"""
