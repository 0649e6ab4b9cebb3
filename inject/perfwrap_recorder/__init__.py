"""The recorder: runs inside the user's processes, standard library only, Python 3.8 and later."""
