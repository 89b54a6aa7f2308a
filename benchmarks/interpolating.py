"""Speed of I_s(β) for one s and a million β's, as a ratio to scipy.special.hyp1f1 on the same task in the same run."""

import numpy as np
from _timing import best
from scipy.special import hyp1f1

from capslit.special import interpolating_integral


def main(n=1_000_000):
    "Print one line per order: capsules of dimension d and ten classes have s = 5 d."
    beta = 10 ** np.random.default_rng(0).uniform(-3, 4, n)
    single = beta.astype(np.float32)
    print(f"I_s(β), {n:,} β's log-uniform in [1e-3, 1e4]; times faster than hyp1f1(1, s + 2, -β)·β/(s + 1)")
    print(f"{'s':>7} {'float64':>9} {'float32':>9}")
    for s in (0.5, 1, 2, 5, 10, 20, 40, 80, 500, 5000):
        interpolating_integral(s, beta[:1]), interpolating_integral(s, single[:1])  # make the tables
        theirs = best(lambda: beta / (s + 1) * hyp1f1(1, s + 2, -beta), 3)
        ours = [best(lambda: interpolating_integral(s, x), 3) for x in (beta, single)]
        print(f"{s:7} {theirs / ours[0]:8.0f}× {theirs / ours[1]:8.0f}×")


if __name__ == "__main__":
    main()
