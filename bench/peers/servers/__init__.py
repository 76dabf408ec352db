"""Models of the ensemble's Triton, run by its own Python. They import nothing but this folder."""
