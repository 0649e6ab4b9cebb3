"""What the dataflow windows of ``perfwrap inspect`` show: costs by line, and work that is wasted."""
