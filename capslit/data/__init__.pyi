from .open import as_source as as_source
from .sources import Source as Source
from .datasets import load_digits as load_digits
from .datasets import load_mnist as load_mnist
from .datasets import load_fashion_mnist as load_fashion_mnist
from .datasets import load_usps as load_usps
from .datasets import load_alphadigits as load_alphadigits
from .datasets import load_omniglot_latin as load_omniglot_latin
