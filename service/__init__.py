"""What the main of a service needs before its own work: settings, logs. Knows no service."""
