"""Time the tuner plugin per call: ``python tests/bench/bench_nccl_plugin.py [RULES]``. A bench, not a test.

A C driver calls the compiled plugin through NCCL's interface, so that Python is not timed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from collbench.backends.plugin import build, grammar
from collbench.backends.plugin.grammar import TunerRule

DRIVER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
typedef int (*get_t)(void*, int, size_t, int, float**, int, int, int, int*);
typedef int (*init_t)(void**, uint64_t, size_t, size_t, void*, void*, void*);
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return 1e9 * t.tv_sec + t.tv_nsec; }
int main(int argc, char** argv) {
  (void)argc;
  void** plugin = dlsym(dlopen(argv[1], RTLD_NOW), "ncclTunerPlugin_v6");
  void* context;
  float cost[21] = {1};
  int channels = 0;
  double start = now();
  ((init_t)plugin[1])(&context, 1, 8, 1, 0, 0, 0);
  double loaded = now();
  const int calls = 5000000;
  uint64_t x = 88172645463325252ull;
  for (int i = 0; i < calls; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64: sizes without a pattern */
    ((get_t)plugin[2])(context, 4, x >> 30, 1, (float**)(void*)cost, 7, 3, 0, &channels);
  }
  printf("init %.2f ms, %.1f ns a call\n", (loaded - start) * 1e-6, (now() - loaded) / calls);
}
"""


def main() -> None:
    """Build, write a table of as many rules as asked for (default: 10, 1 000, 100 000), and time the calls."""
    counts = [int(word) for word in sys.argv[1:]] or [10, 1_000, 100_000]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        library = build.build(work / build.LIBRARY)
        (work / "driver.c").write_text(DRIVER)
        subprocess.run(
            [build.compiler(), "-O2", "-o", work / "driver", work / "driver.c", "-ldl"], check=True
        )
        for count in counts:
            step = 2**34 // count
            rules = (
                TunerRule("allreduce", (i * step, (i + 1) * step - 1), (8, 8), (1, 1),
                          ("ring", "tree")[i % 2], "ll")
                for i in range(count)
            )  # fmt: skip
            table = work / "table.txt"
            table.write_text(grammar.render(rules))
            env = {**os.environ, grammar.TABLE_VARIABLE: str(table)}
            shown = subprocess.run(
                [work / "driver", library], env=env, capture_output=True, text=True, check=True
            )
            print(f"{count:7d} rules: {shown.stdout.strip()}")


if __name__ == "__main__":
    main()
