"""Capsule regression and its relatives: latent variables learned by EM."""
__version__ = "0.2.0"

import lazy_loader as lazy

# The public names are those of __init__.pyi; a module is imported when one of its names is first
# asked for
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
