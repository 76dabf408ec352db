"""HTTP servers under one application: what each takes of the processor for a request."""
