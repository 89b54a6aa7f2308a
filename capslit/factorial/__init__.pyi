from .quantizer import FactorialVectorQuantizer as FactorialVectorQuantizer
from .hmm import FactorialHMM as FactorialHMM
