"""From a registered MLflow version to a package that every Triton holds.

Three programs live here and never import each other: ``reconcile`` is the controller's loop,
``convert`` the process that turns one version into a package, ``loading`` what keeps one Triton's
models as the endpoints say.
"""
