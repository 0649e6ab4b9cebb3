"""The problems that perfwrap finds; one file each."""
