"""The pages use the words of CONTRIBUTING's table. Only words that are wrong in every sentence are looked for."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BRITISH = (
    "optim|standard|initial|normal|parameter|amort|general|maxim|minim|random|vector|serial|discret|summar|organ|"
    "recogn|real|factor|marginal|visual|regular|penal|special|quant|neutral|local|final|util|stabil|central|memor"
)
"""Stems of verbs that end in -ise only in British English."""
WORDS = {
    r"laws?": "distribution",
    r"(?<!standard )deviations?": "standard deviation, scale",
    r"begun": "initial, initialize",
    r"kept": "saved, cached",
    r"pictures?": "figure, image",
    r"(go|goes|went|gone) on": "resume, continue",
    r"to the bit": "bit-identical",
    r"so many": "n, count",
    r"the dead|dead particles?": "zero-weight particles",
    rf"\w*({BRITISH})is(e|ed|es|er|ers|ing|ation|ations)": "the American spelling, -ize",
    r"\w*(colour|favour|behaviour|neighbour|centre|modelling|labelled)\w*": "the American spelling",
}
"""Patterns of words, each with what to write instead."""
ALLOWED = ("self-organising state-space model",)
"""Titles of others."""


def wrong_words(text: str) -> list[str]:
    """The wrong words of a page's prose, each with what to write instead. Code, links and the table are left out."""
    text = re.sub(r"\| write \| not \|\n(\|.*\n)+", "", text)
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"\s+", " ", text)
    for quotation in ALLOWED:
        text = text.replace(quotation, "")
    wrong = []
    for pattern, better in WORDS.items():
        for found in re.finditer(rf"\b({pattern})\b", text, re.IGNORECASE):
            around = text[max(found.start() - 30, 0) : found.end() + 30]
            wrong.append(f"'{found[0]}' in '...{around}...': write {better}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_table(page):
    wrong = wrong_words(page.read_text())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "sentence",
    [
        "Draws from the filtering law.",
        "The deviation of a step is 0.3.",
        "A run that has begun.",
        "The newest three are kept.",
        "A picture of the data.",
        "The run goes on after Ctrl-C.",
        "It resumes to the\nbit.",
        "It draws so many particles.",
        "A dead particle has no children.",
        "An optimiser with standardised columns.",
        "A reparameterised proposal.",
        "The centre of a column.",
        "| the smoothing laws | of a table |",
    ],
)
def test_a_planted_word_is_found(sentence):
    assert wrong_words(f"# A title\n\nSome text. {sentence} More text.\n")


def test_code_and_good_words_pass():
    assert not wrong_words(
        "The standard\ndeviation, as in `law` and [the figure](pictures/law.png); likewise noise, otherwise a precise "
        "promise: an optimizer with standardized columns raises no surprise, and a realistic analysis advises.\n"
        "```\nto the bit\n```\n| write | not |\n|---|---|\n| distribution | law |\n"
    )
