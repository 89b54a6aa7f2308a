from .base import EMEstimator as EMEstimator
from .persistence import Saved as Saved
