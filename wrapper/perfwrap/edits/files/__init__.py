"""The files that are edited: how they are read, written and compared, and several edits of one text."""
