"""Records of GPU kernels: busy and idle time, launches, kinds of kernels, their limits."""
