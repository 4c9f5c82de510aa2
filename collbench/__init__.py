"""collbench: measure, compare, tune and prove collective communication."""

__version__ = "0.1.0"
