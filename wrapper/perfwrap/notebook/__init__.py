"""``%%perfwrap`` in notebooks: records one cell in the kernel, and shows the result below it."""
