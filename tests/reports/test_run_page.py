"""Pages about runs: complete for those that ended, honest about those that did not, and unmoved by what files hold."""

import json
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mcfo.errors import InputError
from mcfo.reports.run_page import write_run_report
from support.runs import STEPS, make_config, make_line, make_lines, make_results, make_seed, write_folder


def page_of(folder: Path) -> str:
    """The text of the page that is made of a folder, without the pictures' bytes."""
    page = write_run_report(folder).read_text()
    return unescape(re.sub(r"base64,[^\"]*", "base64,", page))


def visible(page: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split())


def warnings_of(page: str) -> list[str]:
    return [visible(text) for text in re.findall(r'<p class="warning"[^>]*>(.*?)</p>', page)]


def figures_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "figures").iterdir()}


def test_a_run_that_ended(tmp_path):
    lines = [{**line, "watched": {"theta_1": 0.9 - 1 / line["step"]}} for line in make_lines(0, 1, 2, steps=200)]
    results = make_results(make_seed(0), make_seed(1), make_seed(2), warnings=["Series 3 has a gap."])
    folder = write_folder(tmp_path / "run", None, lines, results)
    page = page_of(folder)
    text = visible(page)
    assert "linear-gaussian with the proposal AffineGaussian was learned from 40 series with 4000 steps in all" in text
    assert "3 numbers of the model and 2049 numbers of the proposal" in text
    assert f"It took all {STEPS} steps (3 seeds), in 33 s." in text
    assert "of the best seed (1) is 1.1024 nats, where the exact value for its parameters is 1.1003." in text
    assert "from 1.1024 to 1.1044" in text
    assert "94.0 of 100 particles, and 13.2 where it is lowest" in text
    assert warnings_of(page) == ["Series 3 has a gap."]
    assert "<strong>1.1024</strong>" in page
    assert "<strong>1.1034</strong>" not in page
    assert "transition matrix 0.9100 0.010 0.9000 0.9100 0.9200" in text
    assert "weights of proposal 64 × 32" in text
    assert "Held fixed: initial noise = 1.000." in text
    assert (
        "by the filter score, from a particle filter with 100 particles (systematic resampling at every step)" in text
    )
    assert "by the doubly reparameterized gradient, from a particle filter with 10 particles" in text
    assert "optimizer_options.b1 0.9" in text
    assert "seeds 0, 1, 2" in text
    assert "held-out.csv 10 1000 1 fefefefefefe" in text
    assert "Computed in float32 on 2 devices. Versions: mcfo 0.1.0, jax 0.10.2 and equinox 0.13.2." in text
    assert re.search(r"<pre><code>mcfo fit linear-gaussian ", page)
    assert figures_of(folder) == {"bound.png", "ess.png", "gradients.png", "watched.png"}
    assert page.count("<img ") == 4
    assert len(re.findall(r'<img [^>]*alt="[^"]{20,}"', page)) == 4
    assert not list(tmp_path.rglob("*.part"))


def test_parameters_as_people_mean_them(tmp_path):
    stored = make_seed(0)
    readable = {"model.emission_noise.standard_deviation": [2.5], "model.initial_mean": [7.0], "proposal.gain": [[0.5]]}
    results = make_results({**stored, "readable": readable}, readable_fixed=["model.initial_mean"])
    page = page_of(write_folder(tmp_path / "run", make_config(), [], results))
    first, later = visible(page).split("How good the forecasts are")
    assert "standard deviation of emission noise 2.500" in first
    assert "Held fixed: initial mean = 7.000." in first
    assert "gain of proposal" not in first
    assert "gain of proposal 0.5000" in later


def test_the_same_folder_makes_the_same_page(tmp_path):
    folder = write_folder(tmp_path / "run", None, make_lines(0, steps=50), make_results(make_seed(0)))
    first = write_run_report(folder).read_bytes()
    assert write_run_report(folder).read_bytes() == first


def test_an_early_stop_without_an_exact_answer(tmp_path):
    results = make_results(
        make_seed(0, exact_nll_per_step=None, prediction_rmse=None), stopped="early", steps=900, evaluated_on="data"
    )
    text = visible(page_of(write_folder(tmp_path / "run", None, make_lines(0, steps=50), results)))
    assert f"It stopped early, at step 900 of {STEPS} (1 seed), in 33 s" in text
    assert "On the learning data the NLL per step is 1.1044 nats. The mean" in text
    assert "exact" not in text
    assert "RMSE" not in text
    assert "best seed" not in text
    assert "Bold" not in text


@pytest.mark.parametrize("command", ["mcfo fit x --out run", None])
def test_a_run_that_has_not_ended(tmp_path, command):
    config = make_config(command=command, validation=None)
    torn = '{"seed": 0, "step": 410, "lo'
    folder = write_folder(tmp_path / "run", config, make_lines(0, 1, steps=400)[:-1], torn=torn)
    page = page_of(folder)
    (warning,) = warnings_of(page)
    assert f"it is at step 390 of {STEPS}. Resume it with the same" in warning
    assert ("command and --resume" if command else "call and resume=True") in warning
    assert ("Call mcfo.fit with mcfo 0.1.0 with LinearGaussian" in visible(page)) == (command is None)
    assert "0 400 -1.5" in visible(page)
    assert "What was learned" not in page


@pytest.mark.parametrize("lines", [None, [], [make_line(0, 10)]])
def test_hardly_any_metrics(tmp_path, lines):
    folder = write_folder(tmp_path / "run", None, lines)
    page = page_of(folder)
    assert len(warnings_of(page)) == 1
    if lines:
        assert page.count("<img ") == 3
    else:
        assert "nothing was recorded yet" in warnings_of(page)[0]
        assert "There is nothing to draw" in page
        assert "<img " not in page


def test_values_that_are_missing(tmp_path):
    empty = {name: None for name in make_line(0, 100) if name not in ("seed", "step")}
    lines = [
        line
        for step in range(10, 210, 10)
        for line in (
            make_line(0, step, ess=None, grad_norm_phi=None, watched={}),
            {"seed": 1, "step": step, **empty},
            make_line(2, step, grad_norm_theta=0.0 if step < 50 else 1e-3, loss=float("nan"), watched=None),
        )
    ]
    seed = make_seed(1, **dict.fromkeys(make_seed(1)["evaluation"]))
    folder = write_folder(tmp_path / "run", make_config(validation=None), lines, make_results(make_seed(0), seed))
    page = page_of(folder)
    assert any("no finite NLL for seed 1." in warning for warning in warnings_of(page))
    assert figures_of(folder) == {"bound.png", "ess.png", "gradients.png"}
    assert '<td class="number">–</td>' in page


def test_nothing_but_missing_values(tmp_path):
    lines = [{"seed": 0, "step": step, "loss": None, "ess": None} for step in (10, 20)]
    page = page_of(write_folder(tmp_path / "run", None, lines, make_results(make_seed(0, nll_per_step=None))))
    assert "There is no finite NLL on the validation data." in page
    assert "There is nothing to draw" in page


def test_warnings_with_cause_and_remedy(tmp_path):
    lines = [{**line, "skipped": line["step"] // 100 * line["seed"]} for line in make_lines(0, 1, steps=200)]
    second = {**make_seed(1, nll_per_step=1.3, ess=3.2, collapsed=3), "skipped": 20}
    folder = write_folder(tmp_path / "run", None, lines, make_results(make_seed(0), second, steps=200))
    page = page_of(folder)
    assert "4 warnings below: read them before you use these numbers." in page
    assert "Nothing stands out" not in page
    collapsed, skipped, sample_size, spread = warnings_of(page)
    assert "collapsed in up to 3 of 10 series at the evaluation (seed 1)" in collapsed
    assert "20 updates were skipped, 5.0% of all steps (seed 1)" in skipped
    assert "lower learning rate" in skipped
    assert "only 3.2% of the particles (seed 1; below 5% is low)" in sample_size
    assert "from 1.1044 to 1.3000 (seed 1)" in spread
    assert "skipped.png" in figures_of(folder)


@pytest.mark.parametrize("gap", [0.04, 0.06])
def test_a_small_spread_is_no_warning(tmp_path, gap):
    results = make_results(make_seed(0, nll_per_step=1.0), make_seed(1, nll_per_step=1.0 + gap))
    page = page_of(write_folder(tmp_path / "run", None, [], results))
    assert len(warnings_of(page)) == (gap > 0.05)
    assert ("Nothing stands out" in page) == (gap < 0.05)
    assert "The forecasts were not checked" in page


def test_the_sample_size_of_an_open_run_and_of_pimh(tmp_path):
    config = make_config()
    smc = config["objective"]["theta"]["sampler"]
    config["objective"]["theta"]["sampler"] = {"kind": "PIMH", "sweeps": 5, "sampler": smc}
    page = page_of(write_folder(tmp_path / "run", config, [make_line(0, step, ess=4.0) for step in (10, 20)]))
    assert any("only 4.0% of the particles" in warning for warning in warnings_of(page))
    assert "from PIMH with 5 sweeps of a particle filter with 100 particles" in page
    assert "(K = 100)" in page


def test_a_step_that_was_repeated_after_a_resume_counts_once(tmp_path):
    lines = [make_line(0, 10, skipped=7), make_line(0, 20, skipped=8), make_line(0, 10, skipped=1)]
    page = page_of(write_folder(tmp_path / "run", None, [*lines, make_line(0, 20, skipped=2)]))
    assert any("2 updates were skipped, 10% of all steps" in warning for warning in warnings_of(page))


def test_many_seeds_and_a_steep_descent(tmp_path):
    lines = [
        {**line, "log_evidence_per_step": -1.0 - 1e6 / line["step"] ** 3} for line in make_lines(*range(12), steps=300)
    ]
    results = make_results(*(make_seed(seed) for seed in range(12)))
    page = page_of(write_folder(tmp_path / "run", None, lines, results))
    assert "The first values lie above the figure." in page
    assert "seed 11" not in page, "with many seeds, mean and spread stand for them"


def test_parameters_of_every_kind(tmp_path):
    def seed(number, odd):
        parameters = {f"model.small{place}": [[1.0 * place, 2.0], [3.0, None]] for place in range(20)}
        kinds = {"model.scalar": 0.5 + number, "model.empty": [], "model.text": "<b>", "model.ragged": [[1], [1, 2]]}
        return {**make_seed(number), "parameters": {**parameters, **kinds, "model.odd": odd, "model.deep": [[[[1.5]]]]}}

    folder = write_folder(tmp_path / "run", None, [], make_results(seed(0, [1.0]), seed(1, [1.0, 2.0])))
    text = visible(page_of(folder))
    assert "small0 [0, 1] 2.000 0 2.000 2.000" in text
    assert "small0 [1, 1] – – – –" in text
    assert "small19 2 × 2" in text, "a table does not grow beyond all bounds"
    assert text.count("not numbers of one shape") == 3
    assert "empty 0 – – – –" in text


HOSTILE = [
    '<script>alert(1)</script><img src=x onerror="alert(1)">',
    "$x^{ $ \\frac \\\\ %s {0}",
    "\u202e\x00\x1b[31m\n\t",
    "\ud800 half a pair",
    "系列" * 3000,
    "../../etc/passwd",
]


class Tags(HTMLParser):
    """Every element and every attribute of a page."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


def folder_with(folder: Path, text: str) -> Path:
    """A run with the same text wherever there can be one."""
    smc = {"kind": text, "particles": 10, "resampling": text}
    config = make_config(
        command=text,
        model={"name": text, "class": text, "options": {text: text}, "parameters": {text: [1]}, "fixed": [text]},
        proposal={"class": text, "parameters": {f"p{text}": [2]}},
        objective={"name": text, "theta": {"sampler": smc, "rule": {"kind": text, text: text}}, "phi": None},
        data={"file": text, "series": 1, "steps": 5, "sha256": text},
        settings={text: {text: [text] * 20}, "steps": 20},
        precision=text,
        versions={text: text},
    )
    lines = [make_line(0, step, watched={text: step, f"b{text}": 1.0}) for step in (10, 20)]
    seed = {**make_seed(0), "parameters": {text: [1.0], f"p{text}": [1.0]}}
    return write_folder(folder, config, lines, make_results(seed, warnings=[text], selected=text))


def tags_of(folder: Path) -> set[str]:
    tags = Tags()
    tags.feed(write_run_report(folder).read_text())
    return tags.found


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory):
    return tags_of(folder_with(tmp_path_factory.mktemp("plain") / "run", "plain"))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_from_files_stays_text(tmp_path, plain_tags, text):
    folder = folder_with(tmp_path / "run", text)
    assert tags_of(folder) == plain_tags
    pictures = {"bound.png", "ess.png", "gradients.png", "watched.png"}
    files = {"config.json", "metrics.jsonl", "results.json", "report.html", "figures"}
    assert {path.name for path in tmp_path.rglob("*")} == {"run", *files, *pictures}


@pytest.mark.parametrize("value", ["text", True, [1], {"a": 1}, 10**400, -1e308, -3, None])
def test_values_of_another_kind_are_missing(tmp_path, value):
    line = dict.fromkeys(make_line(0, 100), value)
    lines = [
        make_line(0, 10),
        {**line, "seed": 0, "step": 20, "watched": value},
        make_line(0, 30, watched={"a": value}),
    ]
    config = dict.fromkeys(make_config(), value) | {"kind": "fit"}
    config |= {name: dict.fromkeys(make_config()[name], value) for name in ("model", "objective", "data", "settings")}
    seed = dict.fromkeys(make_seed(0), value) | {"seed": 0}
    second = {**make_seed(1, **dict.fromkeys(make_seed(0)["evaluation"], value)), "parameters": {"a": value}}
    results = dict.fromkeys(make_results(), value) | {"seeds": [value, seed, second]}
    assert "Figure 1." in page_of(write_folder(tmp_path / "run", config, lines, results))
    (tmp_path / "run" / "results.json").write_text(json.dumps(results | {"seeds": value}))
    assert "Figure 1." in page_of(tmp_path / "run")


def spoil(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder


REFUSED = {
    "nothing there": (lambda folder: folder / "nowhere", "does not exist"),
    "a file": (lambda folder: folder / "config.json", "is a file, not a folder"),
    "no run": (lambda folder: (folder / "config.json").unlink() or folder, "holds no run: there is no config"),
    "another kind": (lambda folder: spoil(folder, "config.json", b'{"experiment": "bounds"}'), "has kind null"),
    "no sections": (lambda folder: spoil(folder, "config.json", b'{"kind": "fit", "model": {}}'), "has no objective"),
    "broken config": (lambda folder: spoil(folder, "config.json", b'{"kind": "fit",'), "config.json is not valid JSON"),
    "not text": (lambda folder: spoil(folder, "config.json", b"\xff\xfe\x00"), "config.json is not valid JSON"),
    "a list": (lambda folder: spoil(folder, "config.json", b"[1, 2]"), r"holds \[1, 2\], but an object"),
    "too deep": (lambda folder: spoil(folder, "config.json", b"[" * 10**5 + b"]" * 10**5), "nested more than 30 deep"),
    "deep": (lambda folder: spoil(folder, "config.json", b"[" * 90 + b"]" * 90), "nested more than 30 deep"),
    "broken results": (lambda folder: spoil(folder, "results.json", b"{"), "results.json is not valid JSON"),
    "broken line": (lambda folder: spoil(folder, "metrics.jsonl", b'{"se\n{"seed": 0, "step": 1}\n'), "Line 1 of"),
    "no step": (lambda folder: spoil(folder, "metrics.jsonl", b'{"seed": 0}\n'), "'seed' and 'step'"),
    "no object": (lambda folder: spoil(folder, "metrics.jsonl", b'5\n{"seed": 0, "step": 1}\n'), "is 5, but an object"),
    "figures": (lambda folder: spoil(folder, "figures", b""), "Cannot write"),
    "no file": (lambda folder: (folder / "results.json").mkdir() or folder, "Cannot read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_run_is_refused_with_the_remedy(tmp_path, case):
    make, message = REFUSED[case]
    folder = write_folder(tmp_path / "run", None, [make_line(0, 10)])
    with pytest.raises(InputError, match=message) as caught:
        write_run_report(make(folder))
    assert re.search(r"(?i)give|restore|delete|make room", str(caught.value)), "it says what to do"
    assert not (folder / "report.html").exists()


def test_no_jax_is_needed():
    code = "import sys, mcfo.reports.run_page; sys.exit(any(name.split('.')[0] == 'jax' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
