"""Hand a run's figures over to other programs, each through that project's own library, in its own words.

model.py is what is handed over, made by run.py from figures.py (numbers), series.py (how they went), chosen_steps.py
and metrics.py (names, units); naming.py turns these into paths and words. mlflow.py, wandb.py, tensorboard.py,
otlp.py and prometheus.py each need their library, and are imported only when they are asked for.
"""
