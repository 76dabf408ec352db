"""The checks of a rollout, a module a family: pure evidence about a candidate beside stable."""
