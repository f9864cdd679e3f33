"""Posteriors of parameters: Markov chains with the exact likelihood, or with a filter's estimate of it."""
