"""MLflow: what it says of models and versions, and what it is told of their fate.

``watch`` keeps a snapshot of it and ``write_back`` makes it say what ``projection`` derives from
statuses. A verdict never depends on MLflow; only ``client`` imports its library.
"""
