"""DataLoaders, their workers and queues."""
