"""The suites: one question a file, each a function ``run(plan) -> Report``."""
