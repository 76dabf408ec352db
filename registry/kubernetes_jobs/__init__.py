"""Conversions as Kubernetes Jobs, behind the Protocol that local subprocesses satisfy."""
