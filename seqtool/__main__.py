"""`python -m seqtool`, the same as the `seqtool` command."""

import sys

from seqtool.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
