"""One Triton's models: which must be there, how they come there, what they cost, who ended Triton.

``loader`` is the loop and ``desired`` what it decides by; ``registry.loader_main`` starts them
beside each Triton. Nothing here knows MLflow or a conversion.
"""
