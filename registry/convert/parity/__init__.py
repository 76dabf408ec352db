"""Whether a graph answers as its original, in which precision, and how its outputs are spread.

Every number here comes out of a graph that runs in this process as Triton will run it.
"""
