"""What people see and ask of a rollout. Used by the commands ``rollout`` and ``status``."""
