"""What is served now: endpoints and packages as they are, swapped in whole.

``reconcile`` compares what is asked with what there is; ``sources`` says where endpoints are read.
"""
