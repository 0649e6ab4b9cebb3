"""The options of the commands: their declarations, and checks of their values."""
