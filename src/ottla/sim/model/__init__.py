"""What clients were told, and so what the broker must hold."""
