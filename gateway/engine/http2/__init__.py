"""Unary gRPC calls on the event loop; see ``README.md``. Nothing of Headrace is imported here."""
