from collbench.algorithms import Algorithm
ALGORITHMS: tuple[Algorithm, ...] = ()
