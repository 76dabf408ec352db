"""Headrace beside other servers on one model, as ``bench.gpu`` measures them."""
