"""The program `mcfo`, also as `python -m mcfo`."""

from mcfo import interrupts


def main() -> None:
    """Run the command line; Ctrl-C is taken over before anything that takes time is imported."""
    interrupts.take_over()
    from mcfo.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
