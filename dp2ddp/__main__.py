"""``python -m dp2ddp``."""

import sys

from dp2ddp.cli import main

sys.exit(main())
