"""Time of I_s(β) for one s and many β's beside scipy.special.hyp1f1 on the same task, by compiled
loops, if Numba is installed, and by operations on arrays.

Capsules of dimension d and ten classes have s = 5 d. I_s(β) = β/(s + 1) · ₁F₁(1, s + 2, −β),
log-uniform β's from 10⁻³ to 10⁴. Beside both stands the floor of the loops: reading β and writing
I_s(β).
"""

import numpy as np
from _table import Row, alone, in_turns
from scipy.special import hyp1f1

from capslit.capsules import special


def rows(n=200_000):
    beta = 10 ** np.random.default_rng(0).uniform(-3, 4, n)
    for s in (0.5, 5, 40, 500):
        for x in (beta, beta.astype(np.float32)):

            def ours(asked):
                special._compiled_integrals.asked = asked
                return special.interpolating_integral(s, x)

            enough = special._compiled_integrals.enough
            assert np.array_equal(ours(0), ours(enough))  # makes the tables, and compiles
            arrays, loops, theirs, copy = in_turns(
                lambda: ours(0),
                lambda: ours(enough),
                lambda: beta / (s + 1) * hyp1f1(1, s + 2, -beta),
                x.copy,
                rounds=5,
                rest=0,
            )
            what, to = f"I_s(β), s = {s:g}, {x.dtype}", "scipy.special.hyp1f1, float64"
            yield Row(what, loops / theirs, to, 1 / 30)
            yield Row(f"{what}, as arrays", arrays / theirs, to, 1.0)
            yield Row(what, loops / copy, "a copy of β")


if __name__ == "__main__":
    alone(rows)
