"""Batches of similar lengths: what is padded, what is seen how often, and that no likelihood changes."""

import itertools

import jax
import numpy as np
import pytest

import mcfo
from mcfo.data.batching import Batches, as_buckets, count_steps
from mcfo.errors import InputError
from mcfo.inference.evaluation import evaluation_sampler, series_scores
from support.learning import TRUTH


def ragged(*lengths):
    random = np.random.default_rng(3)
    return [mcfo.Series.from_values(random.normal(size=(length, 1))) for length in lengths]


def padded(buckets):
    return sum(batch.observations.shape[0] * batch.observations.shape[1] for batch in buckets)


def numbers(buckets):
    return [np.asarray(batch.series_id).tolist() for batch in buckets]


def test_batches_have_every_series_once_an_epoch_and_follow_the_step():
    batches = Batches((10,), 3, (0, 5))
    buckets, epoch = batches(0, 3)
    assert not buckets.any()
    for seed in range(2):
        places = epoch[:, seed].ravel()
        assert len(set(places)) == 9
    assert (epoch[:, 0] != epoch[:, 1]).any()
    assert (Batches((10,), 3, (0, 5))(2, 5)[1] == batches(0, 7)[1][2:]).all(), "a resumed run sees the same"
    assert Batches((2,), 10, (0,))(0, 1)[1].shape == (1, 1, 2)


def test_series_of_all_buckets_are_seen_equally_often():
    counts, batch = (7, 13, 5), 5
    batches = Batches(counts, batch, (0, 1))
    steps = 4000
    buckets, places = batches(0, steps)
    for bucket, count in enumerate(counts):
        here = places[buckets == bucket]
        assert here.max() == count - 1
        share = np.bincount(here[:, 0].ravel(), minlength=count) / (steps * batch)
        np.testing.assert_allclose(share.sum(), count / sum(counts), rtol=0.02)
        np.testing.assert_allclose(share, 1 / sum(counts), rtol=0.1)
    again = Batches(counts, batch, (1,))(1000, 50)
    assert (again[0] == buckets[1000:1050]).all(), "the order of the buckets is that of all seeds"
    assert (again[1][:, 0] == places[1000:1050, 1]).all()


def test_the_cuts_pad_least():
    lengths = (3, 40, 5, 100, 4, 90, 38, 6)
    series = ragged(*lengths)
    for most, batch in ((2, 1), (3, 1), (3, 2)):
        buckets = as_buckets(series, most=most, batch=batch)
        ordered = sorted(lengths)
        best = min(
            sum((high - low) * ordered[high - 1] for low, high in itertools.pairwise((0, *cuts, len(lengths))))
            for count in range(most)
            for cuts in itertools.combinations(range(1, len(lengths)), count)
            if min(high - low for low, high in itertools.pairwise((0, *cuts, len(lengths)))) >= batch
        )
        assert padded(buckets) == best
        assert sorted(itertools.chain(*numbers(buckets))) == list(range(len(lengths)))
        assert sum(map(count_steps, buckets)) == sum(lengths)
    assert numbers(as_buckets(series, most=1)) == [list(range(8))]
    for batch in as_buckets(series, most=4, multiple=2):
        assert len(batch.observations) % 2 == 0


def test_buckets_are_made_where_they_pay():
    assert len(as_buckets(ragged(3, 40, 5, 100))) == 1, "little padding"
    assert len(as_buckets(ragged(*[50] * 100))) == 1, "none at all"
    many = as_buckets(ragged(*range(10, 210)), batch=10)
    assert 1 < len(many) <= 4
    assert padded(many) <= 1.3 * sum(range(10, 210))
    with pytest.raises(InputError, match="at index 1"):
        as_buckets([ragged(3)[0], "a"])
    with pytest.raises(ValueError, match="different numbers of observed dimensions"):
        as_buckets([*ragged(3), mcfo.Series.from_values(np.zeros((2, 2)))])


@pytest.mark.slow
def test_no_bucket_padding_or_order_changes_a_likelihood():
    series = [mcfo.Series.from_values(one.observations, series_id=n) for n, one in enumerate(ragged(3, 40, 5, 90, 38))]

    def likelihoods(buckets):
        found = {}
        for batch in buckets:
            scores = series_scores(
                evaluation_sampler(7), TRUTH, mcfo.proposals.LocallyOptimal(TRUTH), batch, key=jax.random.key(1)
            )
            found |= dict(zip(np.asarray(batch.series_id).tolist(), np.asarray(scores.log_evidence), strict=True))
        return np.array([found[number] for number in sorted(found)])

    together = likelihoods(as_buckets(series, most=1))
    np.testing.assert_allclose(likelihoods(as_buckets(series, most=3)), together, rtol=1e-12)
    np.testing.assert_allclose(likelihoods(as_buckets(series[::-1], most=2)), together, rtol=1e-12)
    np.testing.assert_allclose(likelihoods([mcfo.stack([one]) for one in series[1:]]), together[1:], rtol=1e-12)
    other = [mcfo.Series.from_values(one.observations, series_id=9 - n) for n, one in enumerate(series)]
    assert not np.allclose(likelihoods(as_buckets(other, most=1))[::-1], together, rtol=1e-3)


@pytest.mark.slow
def test_learning_in_buckets_sees_all_of_them():
    series = ragged(*[4] * 6, *[30] * 6)

    def learn(seeds):
        return mcfo.fit(
            TRUTH,
            mcfo.proposals.LocallyOptimal(TRUTH),
            series,
            objective=mcfo.objectives.mcfo(5),
            validation=series,
            steps=8,
            batch=3,
            seeds=seeds,
            buckets=2,
            log_every=1,
            devices=1,
        )

    whole = learn((0, 1))
    assert whole.evaluation.series == 12
    assert whole.evaluation.steps == sum(one.steps for one in series)
    # Minus a bound of 30 steps is larger than one of 4.
    losses = [line["loss"] for line in whole.metrics if line["seed"] == 0]
    assert sum(loss > 20 for loss in losses) == 4
    alone = [line["loss"] for line in learn((1,)).metrics]
    np.testing.assert_allclose(alone, [line["loss"] for line in whole.metrics if line["seed"] == 1], rtol=1e-9)
