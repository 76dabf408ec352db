"""From a registered MLflow version to a package that every Triton holds.

``controller.py`` reconciles endpoints with the registry, ``convert/`` is the process that turns one
version into a package, ``loader.py`` keeps one Triton's models as the endpoints say.
"""
