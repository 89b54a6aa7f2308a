from .claims import claim as claim
from .ledger import collect as collect
from .ledger import survey as survey
