"""The `seqtool` command, which is `python -m seqtool` too.

It imports nothing before Ctrl-C can end it without a word: the command line takes its time to load.
"""

import signal
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from seqtool.cli.app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
