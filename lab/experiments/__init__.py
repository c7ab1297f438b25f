"""Whole things that a verb does: from what was asked for to what is measured."""
