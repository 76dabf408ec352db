"""Folds prediction events into exact windows, and tells people what they show."""
