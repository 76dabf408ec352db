"""``python -P -m headrace.controller``."""

import sys

from headrace.controller.main import main

sys.exit(main())
