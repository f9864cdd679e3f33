"""Gradient rules of the user's own on the command line: `--theta path/to/file.py:Name` and `--phi`."""

import hashlib
import json

import numpy as np
import pytest

from support.commands import SMALL, invoke, planned, refused

RULES = """
import jax, jax.numpy as jnp
from mcfo.rules import FilterScore, Flow, StepRule

class Tempered(StepRule):
    name = "tempered-kl"
    flow = Flow("none")
    learns = ("phi",)
    temperature: float = 2.0

    def term(self, step):
        flatter = jax.nn.softmax(jax.lax.stop_gradient(step.log_weights) / self.temperature)
        return jnp.sum(flatter * step.log_proposal)

hot = Tempered(4.0)
score = FilterScore()
number = 3
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "rules.py").write_text(RULES)
    values = np.cumsum(np.random.default_rng(0).normal(size=12))
    (tmp_path / "series.csv").write_text("level\n" + "".join(f"{value:.4f}\n" for value in values))
    return tmp_path


def fit(files, *options):
    return ["stochastic-volatility", "--data", files / "series.csv", "--out", files / "run", *SMALL, *options]


def test_a_rule_is_found_and_saved_by_name(files, monkeypatch):
    rule = f"{files / 'rules.py'}:hot"
    words = fit(files, "--phi", rule, "--theta", f"{files / 'rules.py'}:score")
    planned(monkeypatch, *words)
    objective = json.loads((files / "run" / "config.json").read_text())["objective"]
    assert objective["phi"]["rule"] == {"kind": "Tempered", "temperature": 4.0} | objective["phi"]["rule"]
    digest = hashlib.sha256(RULES.encode()).hexdigest()
    path = str((files / "rules.py").resolve())
    assert objective["rules"]["phi"] == {"name": "rules.py:hot", "own": True, "path": path, "sha256": digest}
    assert objective["theta"]["rule"]["name"] == "filter-score"
    (files / "rules.py").write_text(RULES.replace("hot = Tempered(4.0)", "hot = Tempered(8.0)"))
    assert refused(invoke("fit", *words, "--resume"), "objective.phi.rule.temperature was 4.0 and is 8.0")


def test_names_of_rules_need_no_other_option(files, monkeypatch):
    planned(monkeypatch, *fit(files, "--theta", "filter-score", "--phi", "dreg"))
    objective = json.loads((files / "run" / "config.json").read_text())["objective"]
    assert [objective[side]["rule"]["name"] for side in ("theta", "phi")] == ["filter-score", "dreg"]
    assert "rules" not in objective


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--theta", "rules.py:Tempered"], "learns phi, so that it cannot be the rule for theta. Name it with --phi"),
        (["--phi", "rules.py:Tempred"], "Did you mean 'Tempered'?"),
        (["--phi", "rules.py:number"], "must be a class derived from mcfo.rules.StepRule or mcfo.rules.PathRule"),
        (["--phi", "none.py:Tempered"], "There is no file"),
        (["--phi", "dregg"], "There is no rule 'dregg' for phi. Did you mean 'dreg'?"),
        (["--phi", "dreg", "--objective-option", "phi=path-kl"], "both name a rule"),
        (["--phi", "dreg", "--objective", "nasmc"], "nasmc has no option 'phi'"),
    ],
)
def test_what_is_no_rule_is_refused(files, options, message):
    named = [f"{files / one}" if ".py:" in one else one for one in options]
    assert refused(invoke("fit", *fit(files, *named)), message)
    assert not (files / "run").exists()


@pytest.mark.ci
def test_other_commands_do_not_need_the_rule(files):
    fitted = invoke("fit", *fit(files, "--phi", f"{files / 'rules.py'}:Tempered"))
    assert fitted.exit_code == 0, fitted.output
    (files / "rules.py").unlink()
    evaluated = invoke("evaluate", files / "run", "--data", files / "series.csv")
    assert evaluated.exit_code == 0, evaluated.output
