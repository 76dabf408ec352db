"""A version that is Python of its users' own: MLflow's ``pyfunc``, run in a process of its own.

``archive`` packs the model with its packages into one file. ``process`` is the side that asks: a
conversion, and Triton's model (``triton/pyfunc_model``), beside which the loader puts ``process``
and ``worker``. ``worker`` is the process that opens the model and answers, closed off by
``preprocess/model_code/sandbox.py``. Only plain numbers and strings pass between the two.
"""
