"""Tables of command-line tools, and files of other monitors."""
