from .capsules.classifier import CapsuleClassifier as CapsuleClassifier
from .composition.estimator import CompositionalModel as CompositionalModel
from .factorial.hmm import FactorialHMM as FactorialHMM
from .factorial.quantizer import FactorialVectorQuantizer as FactorialVectorQuantizer
from .mixtures.estimator import GaussianMixture as GaussianMixture
from .mixtures.classes import ClassConditionalClassifier as ClassConditionalClassifier
from .mixtures.factor_analysers import MixtureOfFactorAnalyzers as MixtureOfFactorAnalyzers
from .mixtures.linear_manifolds import MixtureOfPCA as MixtureOfPCA
