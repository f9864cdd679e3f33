"""`python -m mcfo`: the command line, where the script `mcfo` is not on the path."""

from mcfo.cli.main import main

main()
