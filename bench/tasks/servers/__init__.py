"""What the other ways to serve the tasks are made of; each runs in an environment of its own."""
