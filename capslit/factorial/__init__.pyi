from .quantizer import FactorialVectorQuantizer as FactorialVectorQuantizer
from .e_steps import Exact as Exact
from .e_steps import Gibbs as Gibbs
from .e_steps import MeanField as MeanField
from .e_steps import Truncated as Truncated
from .hmm import FactorialHMM as FactorialHMM
