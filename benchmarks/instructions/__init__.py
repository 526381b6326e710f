"""Instruction counts of the engine's hot paths, compared with a committed baseline: `make count`.

Times of a shared machine differ by 10 to 100 % from run to run, so they cannot show a slowdown of 3 %. Counts can. There are
three counters, because no single one is both exact on every machine and aware of native code:

- `bytecode`: instructions of the Python interpreter (`sys.settrace` with `f_trace_opcodes`), in all Python code of a path.
- `libraries`: native instructions in the wheels that a path uses, by valgrind's callgrind. The wheels are the same files on each
  machine. Valgrind shows every process the same processor, so numpy and pyarrow choose the same SIMD code (AVX2).
- `system`: native instructions everywhere else, in the interpreter and in the C library. They include copies of memory.

`perf stat -e instructions:u` would count the last two together, but most virtual machines do not support it.

The largest differences between counts of the same path (Python 3.11.7, glibc 2.36, valgrind 3.19, two cores, a load of 20):

| compared | bytecode | libraries | system |
| --- | --- | --- | --- |
| 10 runs | 0 | 0.055 % | 0.42 % |
| 6 runs with different hash seeds | 0 | 0.003 % | 0.52 % |
| 6 runs with different other modules and objects in memory | 0 | 0.012 % | 0.67 % |
| 10 runs during which the code of the counting process changed | 0 | 0.034 % | 1.92 % |
| Python 3.11.2 of Debian and a build of 3.11.7 | 0 | 0.008 % | 10.3 % |

So `system` is compared only for the same build of Python and of the C library, and `libraries` only for the same wheels. If a
path grew, everything is counted again with another hash seed, and the smaller counts are used. To repeat the second row, run
`python -m benchmarks.instructions --runs 6`.
"""
