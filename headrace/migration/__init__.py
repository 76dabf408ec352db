"""KServe's manifests, translated to endpoints: pure, text in and objects out."""
