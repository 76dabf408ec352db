"""What Kubernetes must be told of Headrace's own objects, made from ``contracts/``."""
