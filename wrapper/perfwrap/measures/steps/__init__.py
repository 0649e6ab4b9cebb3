"""How a loop is divided into steps, epochs, phases and sections."""
