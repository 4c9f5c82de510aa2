"""Readers of other tools' output, one file a tool."""
