from __future__ import annotations

import sys
from pathlib import Path

# Helpers stand beside the tests; importlib mode puts no test folder on the path.
sys.path.insert(0, str(Path(__file__).parent))
