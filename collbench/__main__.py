"""``python -m collbench`` is the same as ``collbench``."""

from collbench.cli.__main__ import main

if __name__ == "__main__":
    main()
