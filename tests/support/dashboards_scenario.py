"""What the dashboards' scenario is made of, on the local stack and in a cluster."""

from pathlib import Path

TEXTS = Path(__file__).parents[2] / "examples" / "sentiment" / "texts"
STEP_SECONDS = 5.0
RATE_SECONDS = "30s"
ERRORS_ALONE = """
      errorRate: {}
      latency: null
      classShare: null
      outputShift: null
      drift: null
"""
OTHER_LANGUAGE = "Фильм был скучным, но актриса хороша."
