"""Text to tensors with statistics, and tensors to a task's result. A library without I/O."""
