"""The journals of a run folder and the files beside them."""
