"""Manifests of other model servers, translated to endpoints: pure, text in and objects out."""
