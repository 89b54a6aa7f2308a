"""`python -m capslit` is the command `capslit`."""

import sys

from capslit.cli import main

if __name__ == "__main__":
    sys.exit(main())
