from .patches import PatchFeatures as PatchFeatures
from .sharing import SharedCapsuleClassifier as SharedCapsuleClassifier
