"""Reading series: what is refused, and how it is said."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import Series, stack


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "There are no observations: shape (0, 1)"),
        (np.zeros((0, 3)), "There are no observations: shape (0, 3)"),
        (np.zeros((4, 0)), "There are no observations: shape (4, 0)"),
        (np.zeros((2, 3, 4)), "have shape (2, 3, 4), but (steps, dimensions) is wanted"),
        (3.0, "have shape (), but (steps, dimensions) is wanted"),
        (["a", "b"], "but real numbers are wanted"),
        ([1.0, None, "x"], "observations[2] is 'x', but real numbers are wanted"),
        ([1j], "have dtype complex128, but real numbers are wanted"),
        ([[1.0], [1.0, 2.0]], "The observations are not a table"),
        ([np.nan, np.nan], "All 2 values of the series are missing"),
        ([0.0, np.inf], "observations[1, 0] is infinite (1 such values in all)"),
        ([[0.0, 1.0], [-np.inf, np.inf]], "observations[1, 0] is infinite (2 such values in all)"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Series.from_values(values)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"observed": [True]}, "has shape (1,), but the observations have shape (3, 2)"),
        ({"observed": [1, 0, 1]}, "has dtype int64, but bool is wanted"),
        ({"observed": np.zeros(3, bool)}, "All 6 values of the series are missing"),
        ({"inputs": [1.0, 2.0]}, "There are 3 observations but 2 inputs"),
        ({"inputs": [1.0, np.nan, 2.0]}, "inputs[1] is NaN. Inputs cannot be missing"),
        ({"inputs": [1.0, np.inf, 2.0]}, "inputs[1, 0] is infinite"),
        ({"inputs": np.zeros((3, 1, 1))}, "The inputs have shape (3, 1, 1)"),
    ],
)
def test_bad_masks_and_inputs_are_refused(extra, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Series.from_values(np.zeros((3, 2)), **extra)


def test_none_and_masked_places_are_missing():
    np.testing.assert_array_equal(Series.from_values([1.0, None, 2.0]).observed[:, 0], [True, False, True])
    masked = np.ma.masked_array([1, 999, 2], mask=[False, True, False])
    np.testing.assert_array_equal(Series.from_values(masked).observed[:, 0], [True, False, True])


def test_numbers_beyond_float32_are_named():
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=re.escape("observations[0, 0] = 1e+300 is too large for float32")),
    ):
        Series.from_values([1e300, 1.0])


def test_infinity_may_stand_where_the_mask_hides_it():
    series = Series.from_values([1.0, np.inf, 2.0], observed=[True, False, True])
    np.testing.assert_array_equal(series.sanitized().observations[:, 0], [1.0, 1.0, 2.0])


def test_masks_have_the_smallest_form():
    values = np.ones((4, 3))
    assert Series.from_values(values).observed is None
    assert Series.from_values(values, observed=np.ones(4, bool)).observed is None
    values[2] = np.nan
    assert Series.from_values(values).observed.shape == (4, 1)
    values[1, 0] = np.nan
    assert Series.from_values(values).observed.shape == (4, 3)


def test_counts_stay_whole_numbers():
    assert Series.from_values([3, 0, 2]).observations.dtype == jnp.int32
    assert Series.from_values([True, False]).observations.dtype == jnp.int32
    assert Series.from_values([2**40, 0]).observations.dtype == jnp.float64


def test_nan_and_mask_add_up():
    series = Series.from_values([[1.0, np.nan], [3.0, 4.0]], observed=[True, False])
    np.testing.assert_array_equal(series.observed, [[True, False], [False, False]])


def test_the_filling_is_the_first_observed_value_of_its_column():
    series = Series.from_values([[np.nan, 5.0], [2.0, np.nan]]).pad(3)
    np.testing.assert_array_equal(series.sanitized().observations, [[2.0, 5.0], [2.0, 5.0], [2.0, 5.0]])


def test_stacking_keeps_numbers_or_makes_them():
    series = [Series.from_values(np.ones(n)) for n in (2, 3)]
    np.testing.assert_array_equal(stack(series).series_id, [0, 1])
    np.testing.assert_array_equal(stack(series).length, [2, 3])
    numbered = [Series.from_values(np.ones(2), series_id=n) for n in (7, 3)]
    np.testing.assert_array_equal(stack(numbered).series_id, [7, 3])
    assert stack(numbered).length is None


def test_stacking_joins_masks_of_both_forms():
    whole = Series.from_values([[1.0, 1.0], [np.nan, np.nan]])
    partial = Series.from_values([[1.0, np.nan], [1.0, 1.0]])
    full = Series.from_values([[1.0, 1.0]])
    batch = stack([whole, partial, full])
    np.testing.assert_array_equal(
        batch.observed,
        [[[True, True], [False, False]], [[True, False], [True, True]], [[True, True], [False, False]]],
    )


@pytest.mark.parametrize(
    ("series_list", "message"),
    [
        ([], "Cannot stack an empty list"),
        (
            [Series.from_values(np.ones((2, 1))), Series.from_values(np.ones((2, 2)))],
            "different numbers of observed",
        ),
        ([Series.from_values([1.0], inputs=[1.0]), Series.from_values([1.0])], "Some series have inputs"),
        ([Series.from_values([1.0], series_id=2)] * 2, "have the same series_id ([2, 2])"),
    ],
)
def test_what_does_not_stack_is_refused(series_list, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stack(series_list)


def test_padding_cannot_shorten():
    with pytest.raises(ValueError, match="Cannot pad a series of 3 steps to 2"):
        Series.from_values(np.ones(3)).pad(2)


def test_values_have_nan_for_what_is_missing_and_no_padding():
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 4.0]])
    series = Series.from_values(values)
    np.testing.assert_array_equal(series.values(), values)
    np.testing.assert_array_equal(series.pad(7).values(), values)
    assert series.values().dtype == np.float64
    np.testing.assert_array_equal(Series.from_values([2, 0, 5]).values(), [[2.0], [0.0], [5.0]])
