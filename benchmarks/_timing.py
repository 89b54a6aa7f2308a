"""What the benchmarks share."""
import time


def timed(function):
    "Result of a function and the seconds it took."
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def best(function, repeats=7):
    "Best time of a few calls, in seconds: the one that was disturbed least."
    return min(timed(function)[1] for _ in range(repeats))
