"""Renderers, one file an output."""
