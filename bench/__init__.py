"""Accuracy and speed of Tilecast, each figure with the command that prints it."""
