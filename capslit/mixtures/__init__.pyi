from .estimator import GaussianMixture as GaussianMixture
from .classes import ClassConditionalClassifier as ClassConditionalClassifier
from .factor_analysers import MixtureOfFactorAnalyzers as MixtureOfFactorAnalyzers
from .factor_analysers import Noise as Noise
from .linear_manifolds import MixtureOfPCA as MixtureOfPCA
from .tangents import TangentDistanceClassifier as TangentDistanceClassifier
from .tangents import tangent_vectors as tangent_vectors
