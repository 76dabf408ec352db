"""The page ``/ui``: endpoints, drift, outputs and rollouts in a browser, read-only, no build step.

The document it draws is a pure function of endpoints and the board; it decides nothing by itself.
"""
