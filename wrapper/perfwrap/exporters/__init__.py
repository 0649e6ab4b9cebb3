"""Export a run's figures to other programs, each through that project's own library and conventions.

export_model.py has the exported data, built by run_export.py from figures.py (numbers), series.py (time series),
chosen_steps.py and metrics.py (names, units); naming.py turns these into paths and words. mlflow.py, wandb.py,
tensorboard.py, otlp.py and prometheus.py each need their library, and are imported only if they are used.
"""
