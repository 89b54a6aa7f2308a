from .classifier import CapsuleNetworkClassifier as CapsuleNetworkClassifier
from .procedure import em_routing as em_routing
