"""What people see and ask of a rollout."""
