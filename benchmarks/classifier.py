"""The classifier beside what a user would pick instead: logistic regression and a small neural network of scikit-learn.

Every number is a ratio of two times, or an error, measured in the same run on the same machine. Prediction is also compared with its
floor, the one matrix product that it cannot do without.
"""
import warnings

import numpy as np
from _timing import best, timed
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from capslit import CapsuleClassifier


def main():
    warnings.simplefilter("ignore")
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.4, stratify=y, random_state=0)
    print(f"digits, {len(X_train)} training examples: test error, and time to fit as a ratio to logistic regression")
    peers = {"logistic regression": LogisticRegression(max_iter=1000), "network, 100 hidden": MLPClassifier(max_iter=500, random_state=0)}
    ours = {f"capsules, d = {d}": CapsuleClassifier(d) for d in (1, 2, 4, 8)}
    seconds = {}
    for name, model in (peers | ours).items():
        model, seconds[name] = timed(lambda: model.fit(X_train, y_train))
        print(f"  {name:22s} {100 * (1 - model.score(X_test, y_test)):5.1f} %  {seconds[name] / seconds['logistic regression']:6.2f} ×")

    rng = np.random.default_rng(0)
    Z = rng.standard_normal((50_000, 64)).astype(np.float32)
    print("predict_proba on 50,000 examples: ratio to its one matrix product, and to logistic regression")
    logistic = best(lambda: peers["logistic regression"].predict_proba(Z))
    for name, model in ours.items():
        W = model.coef_.reshape(-1, 64).astype(np.float32)
        floor = best(lambda: Z @ W.T)
        mine = best(lambda: model.predict_proba(Z))
        print(f"  {name:22s} {mine / floor:6.2f} ×  {mine / logistic:6.2f} ×")


if __name__ == "__main__":
    main()
