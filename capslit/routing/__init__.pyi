from .procedure import em_routing as em_routing
