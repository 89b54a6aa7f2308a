"""Time of I_s(β) for one s and many β's beside scipy.special.hyp1f1 on the same task.

Capsules of dimension d and ten classes have s = 5 d. I_s(β) = β/(s + 1) · ₁F₁(1, s + 2, −β), log-uniform β's from 10⁻³ to 10⁴.
"""
import numpy as np
from _table import Row, alone, in_turns
from scipy.special import hyp1f1

from capslit.capsules.special import interpolating_integral


def rows(n=200_000):
    beta = 10 ** np.random.default_rng(0).uniform(-3, 4, n)
    for s in (0.5, 5, 40, 500):
        for x in (beta, beta.astype(np.float32)):
            interpolating_integral(s, x[:1])                  # makes the tables
            ours, theirs = in_turns(lambda: interpolating_integral(s, x), lambda: beta / (s + 1) * hyp1f1(1, s + 2, -beta), rounds=3)
            yield Row(f"I_s(β), s = {s:g}, {x.dtype}", ours / theirs, "scipy.special.hyp1f1, float64", 1.0)


if __name__ == "__main__":
    alone(rows)
