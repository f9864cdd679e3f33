"""The command line in this process."""

from typer.testing import CliRunner

from mcfo.cli.main import app

SMALL = ["--steps", "4", "--particles", "5", "--batch", "2", "--log-every", "2", "--devices", "1", "--no-checks"]
SMALL += ["--objective", "mcfo"]
"""A fit by particles that is over at once. JAX has started with one device here, so that no other number would do."""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def planned(monkeypatch, *arguments):
    """Invoke a fit that ends before its first update. What it would have done stands in its config.json."""

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mcfo.learning.trainer.Trainer.advance", stop)
        result = invoke("fit", *arguments)
    assert result.exit_code == 130, result.output
    return result


def refused(result, message):
    """Whether a command ended with this message alone, and code 2."""
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert result.stderr.startswith("mcfo: ")
    return True
