"""Kinds of values for argparse's `type`."""

import argparse


def within(least, most):
    """Numbers of the kind that the limits are."""
    def number(words):
        value = type(least)(words)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{words} is not {least} to {most}")
        return value
    return number


def several(one):
    """With commas between them."""
    return lambda words: [one(word) for word in words.split(",")]
