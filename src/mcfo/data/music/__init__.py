"""Polyphonic music as piano-rolls."""
