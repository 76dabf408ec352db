"""Grafana's dashboards and Prometheus' rules, as code.

``python -P -m dashboards`` writes ``dashboards/generated``; people import those files, the chart
ships them. Nothing here runs in a service.
"""
