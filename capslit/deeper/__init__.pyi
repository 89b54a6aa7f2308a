from .patches import PatchFeatures as PatchFeatures
