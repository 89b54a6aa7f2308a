from .pairs import CapsulePairClassifier as CapsulePairClassifier
from .pairs import label_probabilities as label_probabilities
from .pairs import overlay as overlay
from .pairs import pair_posterior_ratios as pair_posterior_ratios
from .pairs import pair_probability as pair_probability
from .patches import PatchFeatures as PatchFeatures
from .sharing import SharedCapsuleClassifier as SharedCapsuleClassifier
