"""EM routing between capsules (after Hinton, Sabour and Frosst 2018)."""
import lazy_loader as lazy

# Public names are listed in __init__.pyi; a module is imported at the first use of its names
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
