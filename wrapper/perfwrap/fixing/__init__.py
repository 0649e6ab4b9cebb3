"""`perfwrap fix`: edits the source, runs the edited program, and keeps what is faster and computes the same."""
