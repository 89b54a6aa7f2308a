from .rules import compose as compose
from .estimator import CompositionalModel as CompositionalModel
from .pursuit import Transforms as Transforms
from .pursuit import matching_pursuit as matching_pursuit
from .gaussian import GaussianCompositionalModel as GaussianCompositionalModel
