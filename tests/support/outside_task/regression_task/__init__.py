"""A task that lives outside Headrace: one number a text, as a grade."""
